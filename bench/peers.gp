# gnuplot bench/peers.gp: draws bench/peers.svg from bench/peers.csv (OUT=bench/peers.csv
# bench/peers.sh).  The picture shows the time of core's faster contender divided by those of
# GpuSort and DuckDB, by query.
# For other files: gnuplot -e "csv='FILE'; svg='FILE'; machine='...'" bench/peers.gp
if (!exists("csv")) csv = "bench/peers.csv"
if (!exists("svg")) svg = "bench/peers.svg"
if (!exists("machine")) machine = "2 cores, no GPU"
set terminal svg size 1150,400 font "sans-serif,12" background "white"
set output svg
set datafile separator ","
set grid ytics lc rgb "#dddddd"
set yrange [0:*]
set key outside top center horizontal samplen 2
set ylabel "times the speed of core's best"

# The bars of a query: contender and threads
bars = "'GpuSort cpu,1' 'GpuSort cpu,all' 'GpuSort cuda,1' 'GpuSort cuda,all' 'DuckDB,1' 'DuckDB,all'"
colours = "0x8fb8de 0x336791 0x9fd6bd 0x2a9d5c 0xf3d19c 0xd9822b"
titles = "'GpuSort, 1 thread' 'GpuSort, all' 'with GPU, 1 thread' 'with GPU, all' 'DuckDB, 1 thread' 'DuckDB, all'"
size = system(sprintf("awk -F, 'NR == 2 {print ($1 >= 1e6 ? $1 / 1e6 \" million\" : $1)}' '%s'", csv))
lines(bar) = sprintf("< awk -F, -v OFS=, '$3 \",\" $4 == \"%s\" {print $2, $NF}' '%s'", bar, csv)
measured(bar) = int(system(sprintf("awk -F, '$3 \",\" $4 == \"%s\"' '%s' | wc -l", bar, csv))) > 0
there = ""
do for [i = 1:words(bars)] {
  if (measured(word(bars, i))) { there = there . " " . i }
}

set title sprintf("%s rows, %s", size, machine)
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set xtics noenhanced
plot for [i in there] lines(word(bars, int(i))) using 2:xtic(1) lc rgb int(word(colours, int(i))) title word(titles, int(i)), \
     1 lc rgb "#9e9e9e" title "core's best"
