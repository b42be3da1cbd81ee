# gnuplot bench/gpu.gp: draws bench/gpu.svg from bench/gpu.csv (make bench-gpu).
# The picture shows the Gkeys/s of uniform random keys by their number, with a
# line for each algorithm.
# For other files: gnuplot -e "csv='FILE'; svg='FILE'" bench/gpu.gp
if (!exists("csv")) csv = "bench/gpu.csv"
if (!exists("svg")) svg = "bench/gpu.svg"
set terminal svg size 900,400 font "sans-serif,12" background "white"
set output svg
set datafile separator ","
set logscale x 2
set xrange [80000:1.4e9]
set yrange [0:*]
set xtics ("100K" 100000, "1M" 2**20, "4M" 2**22, "16M" 2**24, "64M" 2**26, "256M" 2**28, "1G" 2**30)
set xlabel "keys"
set ylabel "Gkeys/s"
set grid ytics lc rgb "#dddddd"
set key outside bottom center horizontal samplen 2

# gpusort's algorithms are in blue, green and red, its rivals in grey
colour(a) = a eq "mppsort" ? 0x336791 : a eq "quicksort" ? 0x8fb8de : a eq "mergesort" ? 0x2a9d5c : \
            a eq "radixsort" ? 0xd1495b : a eq "cub-radix" ? 0x444444 : a eq "cub-merge" ? 0xbbbbbb : 0x8a8a8a
# For CUB's radix sort: the faster of its two ways to count
rows(type, a) = sprintf("< awk -F, '$1 == \"%s\" && $2 == \"uniform\" && $4 ~ /^%s(-32|-64)?$/ && $5 > most[$3] {most[$3] = $5} END {for (n in most) print n \",\" most[n]}' '%s' | sort -n", type, a, csv)
algorithms = system(sprintf("awk -F, 'NR > 1 && $2 == \"uniform\" && $1 !~ /row/ && $4 !~ /-checked$/ && $4 != \"cub\" {sub(/-(32|64)$/, \"\", $4); if (!seen[$4]++) print $4}' '%s'", csv))

set multiplot layout 1,2
set title "4-byte integers"
plot for [a in algorithms] rows("int4", a) using 1:2 with linespoints pt 7 ps 0.5 lw 2 lc rgb colour(a) title a
set title "8-byte integers"
plot for [a in algorithms] rows("int8", a) using 1:2 with linespoints pt 7 ps 0.5 lw 2 lc rgb colour(a) title a
unset multiplot
