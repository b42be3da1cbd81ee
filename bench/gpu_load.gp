# gnuplot bench/gpu_load.gp: draws bench/gpu_load.svg from bench/gpu_load.csv
# (OUT=bench/gpu_load.csv bench/gpu_load.sh).  The picture shows the sorts a second by the
# number of clients, with a panel for each number of rows.  Where the device did not do
# all sorts that asked for it, the point has the device's share.
# For other files: gnuplot -e "csv='FILE'; svg='FILE'; machine='...'" bench/gpu_load.gp
if (!exists("csv")) csv = "bench/gpu_load.csv"
if (!exists("svg")) svg = "bench/gpu_load.svg"
if (!exists("machine")) machine = "one H100 and 16 virtual processors"
# the different values of a column
different(n) = system(sprintf("awk -F, 'NR > 1 && !seen[$%d]++ {print $%d}' '%s'", n, n, csv))
sizes = different(2)
clients = different(3)
engines = different(4)
lines = (words(sizes) + 1) / 2
set terminal svg size 900,(60 + 290 * lines) font "sans-serif,12" background "white"
set output svg
set datafile separator ","
set grid ytics lc rgb "#dddddd"
set logscale x 10
set xrange [0.8:1.5 * int(system(sprintf("awk -F, 'NR > 1 && $3 > most {most = $3} END {print most}' '%s'", csv)))]
set yrange [0:*]
set xtics ()
do for [c in clients] { set xtics add (c c) }
set xlabel "clients"
set ylabel "sorts a second"
set key top left Left reverse samplen 2

colour(e) = e eq "cuda" ? 0x2a9d5c : 0x336791
name(e) = e eq "cuda" ? "GPU" : "CPU engine"
size(rows) = rows >= 1e6 ? sprintf("%g million", rows / 1e6) : rows >= 1e3 ? sprintf("%g,000", rows / 1e3) : rows
kind = different(1) eq "array" ? "gpu_sort() of arrays" : "ORDER BY"
# Lines of clients,sorts_per_s,device's share
points(rows, e) = sprintf("< awk -F, -v OFS=, '$2 == %s && $4 == \"%s\" {print $3, $6, ($4 == \"cuda\" && $9 < 99.95 ? sprintf(\"%%.0f %%%%\", $9) : \"\")}' '%s'", rows, e, csv)

set multiplot layout lines,2 title sprintf("%s, %s", kind, machine) noenhanced
do for [rows in sizes] {
  set title size(rows) . " integers"
  plot for [e in engines] points(rows, e) using 1:2 with linespoints pt 7 ps 0.5 lw 2 lc rgb colour(e) title name(e), \
       for [e in engines] points(rows, e) using 1:2:3 with labels offset 0,-0.8 font ",10" tc rgb colour(e) notitle
}
unset multiplot
