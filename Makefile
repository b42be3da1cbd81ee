# gpusort: PGXS build.
#
# These goals need only what PGXS needs:
#   make, make install
#   make installcheck        the SQL suite, against a running server
#   make prove_installcheck  the TAP tests, which start their own servers with the
#                            installed build; PROVE_TESTS=test/t/010_order_by.pl
#                            runs one of them
#   make unit                the unit tests, without PostgreSQL; "make build/unit/cpu_test"
#                            builds one of them
#
# These goals install missing packages, build, and use a private cluster:
#   make check             the tests to run after each change, in two minutes: see
#                          test/check.sh
#   make demo              the main use case on real data
#   make demo-shards       a table on three servers; ROWS=1000000: see bench/demo_shards.sh
#   make test              all tests, in two builds
#   make test-long         100 clients sort for a minute; DURATION=600 CLIENTS=50
#                          and more: see test/load.sh.  Then text under every
#                          locale; PARTS="locales core": see test/long.sh
#   make test-instruments  the tests under sanitizers and valgrind, and fuzzing;
#                          PARTS="fuzz" and more: see test/instruments.sh
#   make soak              random SQL for an hour, on a server with assertions, too;
#                          SECONDS=600: see test/soak.sh
#   make test-versions     builds and tests for PostgreSQL 16 to 19, in chroots and a
#                          virtual environment; VERSIONS="18 19", PARTS="build tap"
#                          and more: see test/versions.sh
#   make test-blocksize    servers with pages of 4, 16 and 32 kB, built from source;
#                          BLOCKSIZES="16": see test/blocksize.sh
#   make test-arm          builds for 64-bit Arm, and the unit tests and the SQL suite
#                          under emulation; PARTS="unit": see test/arm.sh
#   make test-packages     builds the Debian and RPM packages and sorts with them;
#                          PARTS="rpm": see test/packages.sh
#   make test-others       gpusort beside other extensions and the server's own features;
#                          ORDERS="first": see test/others.sh
#   make test-abi          compares the symbols and types of the server that the library
#                          uses with a list, and with other minor releases: see test/abi.sh
#   make check-core        PostgreSQL's own test suites with gpusort doing their
#                          sorts; SUITE="core isolation citext intarray",
#                          CONF="a=1 b=2 | c=3", LOCALE=en_US.UTF-8, PGSRC=folder
#   make test-upgrade OLD_PG_CONFIG=... PG_CONFIG=...
#                          pg_upgrade from one server to another: see test/pg_upgrade.sh
#
# These goals need nvcc, but no PostgreSQL:
#   make bench-gpu         benchmarks the GPU sorts against CUB and thrust;
#                          ARGS="--quick" and more
#   make bench-gpu-plot    plots the results of bench-gpu
#
# These goals need neither:
#   make docs              draws the pictures of docs/; needs GraphViz
#   make dist              writes the last commit to gpusort-VERSION.zip, for PGXN
#
# Variables:
#   WITH_CUDA=auto|yes|no   build gpusort_cuda.so, the CUDA library; auto: if nvcc
#                           is found
#   WITH_CUDA=standin       build that library with a CPU in place of the device, and
#                           gpusort.so with fault injection (test/fault), for
#                           tests
#   CUDA_ARCH="75 90 ..."   GPU architectures; the last one also as PTX
#   WERROR=1                turn warnings into errors
#   PG_CONFIG=...           the server to build for

# "make -f ../gpusort/Makefile" in another folder builds there: a VPATH build.  PGXS
# sets srcdir to the same folder, but later.
srcdir := $(patsubst %/,%,$(or $(VPATH),$(dir $(firstword $(MAKEFILE_LIST)))))
ifneq ($(realpath $(srcdir)),$(CURDIR))
VPATH := $(srcdir)
# make would find objects there, and take them for those to be built here
ifneq ($(wildcard $(addprefix $(srcdir)/,src/*.o src/*/*.o build/*.so build/unit)),)
$(error $(srcdir) has been built in; run "make clean" there first)
endif
endif

# $(call sources,PATTERN...): the matching files of the source folder, as paths below it.
sources = $(patsubst $(srcdir)/%,%,$(wildcard $(addprefix $(srcdir)/,$(1))))

EXTENSION = gpusort
EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(srcdir)/gpusort.control)
MODULE_big = gpusort
DATA = sql/gpusort--$(EXTVERSION).sql

# All C files of these folders are built.  FAULT_OBJS inject faults and belong to the
# stand-in build only.
FAULT_OBJS = test/fault/fault.o test/fault/setting.o
STANDIN_OBJS = test/standin/device.o test/standin/rows.o test/standin/sort.o
c_objs = $(patsubst %.c,%.o,$(call sources,$(addsuffix /*.c,$(1))))
OBJS = $(call c_objs,src src/base src/key src/run src/store src/scan src/functions src/sort src/node src/aggregate src/plan src/index src/gpu src/service)

# OBJS has no C++ and CUDA objects, because PGXS would want LLVM bitcode of each.
CXX_OBJS = $(patsubst %.cc,%.o,$(call sources,src/cpu/*.cc))

REGRESS = functions aggregate aggregate_all settings errors order_by incremental_sort privileges
REGRESS_OPTS = --inputdir=$(srcdir)/test --load-extension=gpusort

# These goals keep the kind of build that the last "make" noted in build/config,
# unless WITH_CUDA is set: "make install" by root may not find the nvcc that
# another user's "make" found.
AS_BUILT_GOALS = install installcheck prove_installcheck test-modules unit build/unit/% uninstall clean
as_built := $(if $(filter-out $(AS_BUILT_GOALS),$(or $(MAKECMDGOALS),all)),,$(if $(filter undefined file,$(origin WITH_CUDA)),$(wildcard build/config)))
ifneq ($(as_built),)
WITH_CUDA ?= $(lastword $(shell cat build/config))
endif
WITH_CUDA ?= auto
CUDA_ARCH ?= 75 80 86 89 90 100 120
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))

# gpusort_cuda is a library of its own, which only the GPU service loads.  gpusort.so
# is the same with it and without.  CUDA_LIB_OBJS are its objects; none: not built.
cuda_shlib = gpusort_cuda$(DLSUFFIX)
ifeq ($(WITH_CUDA),standin)
OBJS += $(FAULT_OBJS)
CUDA_LIB_OBJS = kernels/functions.o $(STANDIN_OBJS)
PG_CPPFLAGS += -DGPUSORT_FAULTS -I$(srcdir)/test
cuda_found = gpusort_cuda: a stand-in for tests
cuda_kind = standin
else ifneq ($(and $(filter-out no,$(WITH_CUDA)),$(or $(NVCC),$(as_built))),)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_OBJS = $(patsubst %.cu,%.o,$(call sources,kernels/*.cu))
CUDA_LIB_OBJS = kernels/functions.o $(CUDA_OBJS)
CUDA_LIBS = -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lpthread
cuda_kind = yes
cuda_found = gpusort_cuda: $(if $(NVCC),by $(NVCC) for architectures $(CUDA_ARCH),as built)
NVCCFLAGS = -O3 -std=c++17 -MMD -MP -lineinfo -Xfatbin -compress-all $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH)) \
	-Xcompiler -fPIC,-fvisibility=hidden,-Wall
else ifeq ($(WITH_CUDA),yes)
$(error WITH_CUDA=yes, but no nvcc was found; set NVCC=/path/to/nvcc)
else
cuda_kind = no
cuda_found = gpusort_cuda: not built (nvcc not found or WITH_CUDA=no)
endif

# The headers of PostgreSQL 15 declare tree walkers as functions of any arguments.  In C23,
# the default of gcc 15, they have none.
PG_CFLAGS += $(if $(filter 15,$(MAJORVERSION)),-std=gnu17)
# From PostgreSQL 16 on, PostgreSQL's macros cast tree walkers, about which clang would warn.
ifdef WERROR
PG_CFLAGS += -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
	-Wno-cast-function-type-strict
NVCCFLAGS += -Werror all-warnings
endif
# With -MMD the compiler writes the headers that an object depends on to a .d file.
PG_CPPFLAGS += -MMD -MP -DGPUSORT_VERSION='"$(EXTVERSION)"' -I$(srcdir)/src -I$(srcdir)/kernels
SHLIB_LINK += $(CXX_OBJS) -lstdc++ -lpthread -ldl
EXTRA_CLEAN = $(CXX_OBJS) $(FAULT_OBJS) $(STANDIN_OBJS) kernels/*.o $(cuda_shlib) build \
	src/*.d src/*/*.d test/fault/*.d test/standin/*.d kernels/*.d test/kernels/*.d bench/*.d test/kernels/kernel_test bench/bench_gpu \
	tmp_check

# JIT gains nothing by inlining these functions into a query, so no LLVM bitcode is built.
override with_llvm := no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

# build/config and build/config_cuda hold the settings of the last build.  Objects
# depend on these files, so that a change of version, server, kind of build or
# architecture rebuilds them.  A change of WERROR rebuilds nothing.
noted = $(shell mkdir -p build && { [ "$$(cat build/$(1) 2>/dev/null)" = "$(2)" ] || echo "$(2)" >build/$(1); })
ifeq ($(as_built)$(findstring n,$(firstword -$(MAKEFLAGS))),)
$(call noted,config,$(EXTVERSION) $(shell $(PG_CONFIG) --version --includedir-server 2>/dev/null) $(cuda_kind))
$(if $(CUDA_OBJS),$(call noted,config_cuda,$(NVCC) $(CUDA_ARCH)))
$(shell mkdir -p $(sort $(dir $(OBJS) $(CXX_OBJS) $(CUDA_LIB_OBJS))))
endif

# Goals that work without PostgreSQL.
PICTURES = $(patsubst %.dot,%.svg,$(wildcard docs/*.dot))
STANDALONE_GOALS = unit build/unit/% bench-gpu bench-gpu-plot bench/bench_gpu test/kernels/kernel_test docs $(PICTURES) dist

# Goals whose scripts install missing packages, PGXS included, and call make again.
SCRIPT_GOALS = check demo demo-shards test test-long test-instruments test-versions test-blocksize test-arm test-packages test-others test-abi test-upgrade soak check-core
.PHONY: $(SCRIPT_GOALS)
ifneq ($(filter $(SCRIPT_GOALS),$(MAKECMDGOALS)),)
check:
	@bash test/check.sh
demo:
	@bash bench/demo.sh
demo-shards:
	@bash bench/demo_shards.sh
test:
	@bash test/run.sh
test-long:
	@bash test/long.sh
test-instruments:
	@bash test/instruments.sh
soak:
	@DURATION="$(SECONDS)" bash test/soak.sh
test-versions:
	@bash test/versions.sh
test-blocksize:
	@bash test/blocksize.sh
test-arm:
	@bash test/arm.sh
test-packages:
	@bash test/packages.sh
test-others:
	@bash test/others.sh
test-abi:
	@bash test/abi.sh
check-core:
	@bash test/check-core.sh
test-upgrade:
	@bash test/pg_upgrade.sh "$(OLD_PG_CONFIG)" "$(PG_CONFIG)"
else ifeq ($(filter-out $(STANDALONE_GOALS),$(or $(MAKECMDGOALS),all)),)
override CPPFLAGS := $(PG_CPPFLAGS) $(CPPFLAGS)
else ifeq ($(PGXS),)
$(error $(PG_CONFIG) was not found; install postgresql-server-dev, set PG_CONFIG, or run "make demo")
else
$(info $(cuda_found))
include $(PGXS)

# gcc vectorises the encoding loops at -O3 only.
src/key/encode.o src/key/keytype.o: CFLAGS += -O3

shlib = gpusort$(DLSUFFIX)
$(shlib): $(CXX_OBJS) build/config
$(OBJS): build/config

# pg_regress looks for the answers in the folder in which it runs.
ifneq ($(realpath $(srcdir)),$(CURDIR))
installcheck: $(CURDIR)/expected
$(CURDIR)/expected:
	ln -s $(realpath $(srcdir))/expected $@
EXTRA_CLEAN += expected
endif
# A build without gpusort_cuda removes an older one, in the tree and where it installs:
# the two libraries must belong together.
.PHONY: cuda-lib install-cuda uninstall-cuda uninstall-note
all: cuda-lib
install: install-cuda
uninstall: uninstall-cuda uninstall-note
uninstall-note:
	@echo "No session can begin where a setting still loads gpusort.  If one does, connect by"
	@echo "  PGOPTIONS=\"-c session_preload_libraries=\" psql"
	@echo "as a superuser, and in each such database:"
	@echo "  ALTER DATABASE name RESET session_preload_libraries;"
	@echo "  DROP EXTENSION gpusort;"
ifneq ($(CUDA_LIB_OBJS),)
cuda-lib: $(cuda_shlib)
kernels/functions.o $(STANDIN_OBJS): build/config
kernels/functions.o $(STANDIN_OBJS): CFLAGS += -fvisibility=hidden
$(cuda_shlib): $(CUDA_LIB_OBJS) build/config
	$(CXX) -shared -o $@ $(CUDA_LIB_OBJS) $(LDFLAGS) $(LDFLAGS_SL) $(CUDA_LIBS)
install-cuda: cuda-lib installdirs-lib
	$(INSTALL_SHLIB) $(cuda_shlib) '$(DESTDIR)$(pkglibdir)/'
else
cuda-lib:
	@rm -f $(cuda_shlib)
install-cuda: uninstall-cuda
endif
uninstall-cuda:
	rm -f '$(DESTDIR)$(pkglibdir)/$(cuda_shlib)'

include $(srcdir)/test/modules.mk
.PHONY: test-modules
test-modules: $(TEST_MODULES)
# PGXS has this recipe, and runs it after installcheck if TAP_TESTS is set.  It is
# a goal of its own here, because the TAP tests take minutes and the SQL suite seconds.
PROVE_TESTS ?= test/t/*.pl
# prove runs in the source folder.
PG_PROVE_FLAGS += -I test/t
.PHONY: prove_installcheck
prove_installcheck: $(TEST_MODULES)
	$(prove_installcheck)
endif

# The CPU engine needs no PostgreSQL, and depends neither on the server nor on WITH_CUDA.
# The head of src/cpu/vqsort.cc says why it has flags of its own.
src/cpu/vqsort.o: cxx_flags = -fmerge-all-constants -fno-sanitize-address-use-after-scope
$(CXX_OBJS): %.o: %.cc
	$(CXX) -std=c++17 -O3 -g -Wall -Wextra $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden \
		-fno-exceptions -fno-rtti $(cxx_flags) $(CPPFLAGS) -c -o $@ $<

kernels/%.o: kernels/%.cu build/config_cuda
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -c -o $@ $<

# These programs need a GPU to run, but not to build.
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

# A release: PGXN takes a zip file whose files are below one folder.
.PHONY: dist
dist:
	@git -C $(srcdir) diff --quiet HEAD || { echo "make dist writes the last commit, and there are changes since" >&2; exit 1; }
	perl $(srcdir)/test/package.pl $(srcdir)
	git -C $(srcdir) archive --format=zip --prefix=gpusort-$(EXTVERSION)/ -o $(CURDIR)/gpusort-$(EXTVERSION).zip HEAD

include $(srcdir)/test/unit/unit.mk

# The calls of "noted" above write these files.
build/config build/config_cuda: ;

-include $(patsubst %.o,%.d,$(OBJS) $(CXX_OBJS) $(CUDA_LIB_OBJS)) test/kernels/kernel_test.d bench/bench_gpu.d
