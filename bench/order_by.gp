# gnuplot bench/order_by.gp: draws bench/order_by.svg from bench/order_by.csv
# (bench/order_by.sh).  The picture shows core's time divided by GpuSort's, by
# query, and by the number of rows.
# For other files: gnuplot -e "csv='FILE'; svg='FILE'; machine='...'" bench/order_by.gp
if (!exists("csv")) csv = "bench/order_by.csv"
if (!exists("svg")) svg = "bench/order_by.svg"
if (!exists("machine")) machine = "2 cores, no GPU"
set terminal svg size 900,400 font "sans-serif,12" background "white"
set output svg
set datafile separator ","
set grid ytics lc rgb "#dddddd"
set yrange [0:*]
set key outside top center horizontal samplen 2
set ylabel "times core's speed"

colour(e) = e eq "cuda" ? 0x2a9d5c : 0x336791
name(e) = e eq "cuda" ? "GPU" : "CPU engine"
dash(e) = e eq "cuda" ? 2 : 1
engines = system(sprintf("awk -F, '$4 == \"cpu\" || $4 == \"cuda\" {if (!seen[$4]++) print $4}' '%s'", csv))
size = system(sprintf("awk -F, '$1 == \"query\" {print ($3 >= 1e6 ? $3 / 1e6 \" million\" : $3); exit}' '%s'", csv))
# Lines of query,rows,ratio: core's time divided by that of one engine.
ratios(part, e) = sprintf("< awk -F, '$1 == \"%s\" && $4 == \"core\" {core[$2, $3] = $6} $1 == \"%s\" && $4 == \"%s\" {q[++n] = $2; r[n] = $3; ms[n] = $6} END {for (i = 1; i <= n; i++) print q[i] \",\" r[i] \",\" core[q[i], r[i]] / ms[i]}' '%s'", part, part, e, csv)
# The same ratios of one query of the part "crossover", by the number of rows.
of(query, e) = ratios("crossover", e) . sprintf(" | awk -F, '$1 == \"%s\"' | sort -t, -n -k2", query)

set multiplot layout 1,2
set title sprintf("%s rows, %s", size, machine)
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set boxwidth 0.9
set xtics rotate by -35 noenhanced
set bmargin 7
set tmargin 6
plot for [e in engines] ratios("query", e) using 3:xtic(1) lc rgb colour(e) title name(e), \
     1 lc rgb "#9e9e9e" title "core"

set title words(engines) > 1 ? "by the number of rows; dashed: GPU" : "by the number of rows"
set style data linespoints
set xtics norotate
set bmargin 4
set logscale x 10
set xrange [250:1.3e6]
set xtics ("300" 300, "1K" 1e3, "3K" 3e3, "10K" 1e4, "30K" 1e5 / 3.333, "100K" 1e5, "300K" 3e5, "1M" 1e6)
set xlabel "rows"
unset ylabel
queries = "'k' '* by k' '* by a and k' '* by txt (C)' '* by id'"
shade(i) = i == 1 ? 0x336791 : i == 2 ? 0x8fb8de : i == 3 ? 0x2a9d5c : i == 4 ? 0xd1495b : 0x8a8a8a
plot for [e in engines] for [i = 1:words(queries)] of(word(queries, i), e) using 2:3 \
       pt (e eq "cuda" ? 5 : 7) ps 0.5 lw 2 dt dash(e) lc rgb shade(i) \
       title (e eq "cuda" ? "" : word(queries, i)) noenhanced, \
     1 lc rgb "#9e9e9e" notitle
unset multiplot
