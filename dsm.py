import subprocess,time,sys
conns=[]
def sess():
    return subprocess.Popen("psql -XAtq -h /tmp/rv/d -U postgres postgres".split(),stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=subprocess.STDOUT,text=True,bufsize=1)
for i in range(16):
    p=sess(); conns.append(p)
    p.stdin.write("SET gpusort.engine=cuda; SELECT cardinality(gpu_sort(array_fill(0::bigint, ARRAY[33000000])));\n"); p.stdin.flush()
    print(i,p.stdout.readline().strip(),flush=True)
    time.sleep(2.6)
    n=subprocess.run("ls /dev/shm | wc -l; cat /proc/sys/kernel/hostname >/dev/null",shell=True,capture_output=True,text=True).stdout.split()
    print("  shm files",n,flush=True)
for p in conns: p.stdin.close()
