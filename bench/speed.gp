# gnuplot bench/speed.gp: draws bench/speed.svg from bench/speed.csv, which has the
# ratios that bench/run.sh printed.  The picture shows how many times as fast as core,
# or intarray, gpusort sorts ten million integers.
set terminal svg size 900,360 font "sans-serif,12" background "white"
set output "bench/speed.svg"
set datafile separator ","
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set ylabel "times core's speed"
set yrange [0:*]
set bmargin 4
set xrange [-0.6:2.6]
set grid ytics lc rgb "#dddddd"
set key inside top left
set title "Ten million integers, 2 cores, no GPU: higher is better"
plot "bench/speed.csv" using 2:xtic(1) title "core / intarray" lc rgb "#9e9e9e", \
     "" using 3 title "gpusort, CPU engine" lc rgb "#336791"
