# gpusort: PGXS build.
#
#   make demo        the main job on real data, on a private cluster
#   make test        all tests, on a private cluster
#   make test-long   a hundred clients sort for a minute; DURATION=600 CLIENTS=50
#                    and so on, see test/load.sh
#   make test-instruments    the tests under sanitizers and valgrind, and fuzzing;
#                    PARTS="fuzz" and so on: see test/instruments.sh
#   make check-core  PostgreSQL's own test suites with gpusort doing their sorts;
#                    SUITE=core|isolation|both, CONF="a=1 b=2 | c=3", PGSRC=folder
#   make bench-gpu   the device's sorts beside CUB and thrust; ARGS="--quick"
#                    and so on; needs nvcc, and no PostgreSQL
#   make bench-gpu-plot    draws what it measured
#   make docs        draws the pictures of docs/; needs GraphViz
#   make, make install, make installcheck    as for any PGXS extension
#
#   WITH_CUDA=auto|yes|no   build the CUDA engine (auto: if nvcc is found);
#                           standin: with a CPU in the device's place and faults
#                           on demand (src/base/fault.c), for tests
#   CUDA_ARCH="75 90 ..."   GPU architectures; the last one also as PTX
#   WERROR=1                warnings are errors
#   PG_CONFIG=...           the server to build for

EXTENSION = gpusort
EXTVERSION = 0.1.0
MODULE_big = gpusort
DATA = sql/gpusort--$(EXTVERSION).sql

# Every C file of a folder is built.  src/gpu and src/service are the CUDA
# engine's; fault*.c inject faults and go into the stand-in build alone.
FAULT_OBJS = src/base/fault.o src/gpu/fault_setting.o
c_objs = $(patsubst %.c,%.o,$(wildcard $(addsuffix /*.c,$(1))))
OBJS = $(filter-out $(FAULT_OBJS),$(call c_objs,src src/base src/key src/run src/store src/functions src/node src/plan))
CUDA_C_OBJS = $(filter-out $(FAULT_OBJS),$(call c_objs,src/gpu src/service))

# C++ and CUDA objects stay out of OBJS: PGXS would want LLVM bitcode of each.
CXX_OBJS = $(patsubst %.cc,%.o,$(wildcard src/cpu/*.cc))

REGRESS = functions aggregate settings errors bench order_by privileges
REGRESS_OPTS = --inputdir=test --load-extension=gpusort

# "make install" takes what "make" built, unless told otherwise: root may not
# find nvcc where another user did.
installs := $(if $(filter-out install installcheck uninstall clean,$(or $(MAKECMDGOALS),all)),,$(if $(filter undefined file,$(origin WITH_CUDA)),$(wildcard build/config)))
ifneq ($(installs),)
WITH_CUDA ?= $(lastword $(shell cat build/config))
endif
WITH_CUDA ?= auto
CUDA_ARCH ?= 75 80 86 89 90 100 120
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
ifeq ($(WITH_CUDA),no)
NVCC :=
else ifeq ($(WITH_CUDA)$(NVCC),yes)
$(error WITH_CUDA=yes, but no nvcc was found; set NVCC=/path/to/nvcc)
endif

ifeq ($(WITH_CUDA),standin)
OBJS += $(CUDA_C_OBJS) $(FAULT_OBJS) test/standin/device.o
PG_CPPFLAGS += -DUSE_CUDA -DGPUSORT_FAULTS
cuda_found = CUDA engine: a stand-in for tests
cuda_kind = standin
else ifneq ($(NVCC),)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
OBJS += $(CUDA_C_OBJS)
CUDA_OBJS = $(patsubst %.cu,%.o,$(wildcard kernels/*.cu))
PG_CPPFLAGS += -DUSE_CUDA
cuda_kind = auto
cuda_found = CUDA engine: yes ($(NVCC), architectures $(CUDA_ARCH))
NVCCFLAGS = -O3 -std=c++17 -MMD -MP -lineinfo $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH)) \
	-Xcompiler -fPIC,-fvisibility=hidden,-Wall
SHLIB_LINK += $(CUDA_OBJS) -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt
else
cuda_kind = no
cuda_found = CUDA engine: no (nvcc not found or WITH_CUDA=no); the CPU engine is built
endif

ifdef WERROR
PG_CFLAGS += -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
NVCCFLAGS += -Werror all-warnings
endif
# -MMD: the compiler notes which headers an object was made of.
PG_CPPFLAGS += -MMD -MP -DGPUSORT_VERSION='"$(EXTVERSION)"' -I$(srcdir)/src -I$(srcdir)/kernels
SHLIB_LINK += $(CXX_OBJS) -lhwy_contrib -lhwy -lstdc++ -lpthread
EXTRA_CLEAN = $(CXX_OBJS) $(CUDA_C_OBJS) $(FAULT_OBJS) test/standin/device.o kernels/*.o build \
	src/*.d src/*/*.d test/standin/*.d kernels/*.d test/kernels/*.d bench/*.d test/kernels/kernel_test bench/bench_gpu

# No function here is worth inlining into a query; build without bitcode.
override with_llvm := no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

# What is built is noted, and built anew when that changes (but for WERROR).
noted = $(shell mkdir -p build && { [ "$$(cat build/$(1) 2>/dev/null)" = "$(2)" ] || echo "$(2)" >build/$(1); })
ifeq ($(installs)$(findstring n,$(firstword -$(MAKEFLAGS))),)
$(call noted,config,$(shell $(PG_CONFIG) --version --includedir-server 2>/dev/null) $(cuda_kind))
$(if $(CUDA_OBJS),$(call noted,config_cuda,$(NVCC) $(CUDA_ARCH)))
endif

# Goals that need no PostgreSQL: those made of kernels/ alone, and pictures.
PICTURES = $(patsubst %.dot,%.svg,$(wildcard docs/*.dot))
DEVICE_GOALS = bench-gpu bench-gpu-plot bench/bench_gpu test/kernels/kernel_test docs $(PICTURES)

# These install what is missing, PGXS included, and build by themselves.
.PHONY: demo test test-long test-instruments check-core
ifneq ($(filter demo test test-long test-instruments check-core,$(MAKECMDGOALS)),)
demo:
	@bash bench/demo.sh
test:
	@bash test/run.sh
test-long:
	@bash test/load.sh
test-instruments:
	@bash test/instruments.sh
check-core:
	@bash test/check-core.sh
else ifeq ($(filter-out $(DEVICE_GOALS),$(or $(MAKECMDGOALS),all)),)
srcdir = .
else ifeq ($(PGXS),)
$(error $(PG_CONFIG) was not found; install postgresql-server-dev, set PG_CONFIG, or run "make demo")
else
$(info $(cuda_found))
include $(PGXS)

# The encoding loops are there to be vectorised, which -O2 does not do.
src/key/encode.o src/key/keytype.o: CFLAGS += -O3

shlib = gpusort$(DLSUFFIX)
$(shlib): $(CXX_OBJS) $(CUDA_OBJS) build/config
$(OBJS): build/config
$(CXX_OBJS): %.o: %.cc build/config
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O3 -g -Wall -Wextra $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden \
		-fno-exceptions -fno-rtti $(CPPFLAGS) -c -o $@ $<
endif

kernels/%.o: kernels/%.cu build/config_cuda
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -c -o $@ $<

# These need a device to run, not to build.
test/kernels/kernel_test bench/bench_gpu: %: %.cu $(CUDA_OBJS)
test/kernels/kernel_test bench/bench_gpu:
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -MF $@.d -I$(srcdir)/kernels -o $@ $< $(CUDA_OBJS) -lcudart_static -ldl -lrt -lpthread

.PHONY: bench-gpu bench-gpu-plot
ifneq ($(CUDA_OBJS),)
bench-gpu: bench/bench_gpu
	bench/bench_gpu $(ARGS)
else
bench-gpu:
	@echo "make bench-gpu builds CUDA code: install nvcc or set NVCC=/path/to/nvcc, and leave WITH_CUDA=auto" >&2; exit 1
endif
bench-gpu-plot:
	gnuplot bench/gpu.gp

.PHONY: docs
docs: $(PICTURES)
docs/%.svg: docs/%.dot
	dot -Tsvg -o $@ $<

# They are written above, if they are.
build/config build/config_cuda: ;

-include $(patsubst %.o,%.d,$(OBJS) $(CXX_OBJS) $(CUDA_OBJS)) test/kernels/kernel_test.d bench/bench_gpu.d
