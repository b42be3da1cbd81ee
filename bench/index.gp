# gnuplot bench/index.gp: draws bench/index.svg from bench/index.csv (OUT=bench/index.csv
# bench/index.sh).  The picture shows the times divided by gpusort's, by index: with workers, if it
# had any.
# For other files: gnuplot -e "csv='FILE'; svg='FILE'; machine='...'" bench/index.gp
if (!exists("csv")) csv = "bench/index.csv"
if (!exists("svg")) svg = "bench/index.svg"
if (!exists("machine")) machine = "2 cores"
set terminal svg size 900,420 font "sans-serif,12" background "white"
set output svg
set datafile separator ","
set grid ytics lc rgb "#dddddd"
set yrange [0:*]
set key outside top center horizontal samplen 2
set ylabel "time, divided by gpusort's"

lines(contender) = sprintf("< awk -F, -v OFS=, '$2 == \"%s\" {print $1, $NF}' '%s'", contender, csv)

set title sprintf("CREATE INDEX, %s", machine)
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set xtics noenhanced rotate by 30 right
plot lines("core") using 2:xtic(1) lc rgb 0x336791 title "core, one process", \
     lines("core workers") using 2:xtic(1) lc rgb 0x8fb8de title "core, workers", \
     lines("gpusort") using 2:xtic(1) lc rgb 0x2a9d5c title "gpusort, one process", \
     1 lc rgb "#9e9e9e" title "gpusort"
