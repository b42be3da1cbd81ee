# test/modules.mk - builds what the tests load into servers, in build/.
#
# $(call test_module,NAME,SOURCES,OBJECTS) builds build/NAME.so, a module for
# CREATE FUNCTION, and adds it to TEST_MODULES.  OBJECTS are gpusort's objects of
# C++ that it needs.  A module has its own copies of the
# gpusort files that it tests, and -Bsymbolic makes it call these copies and not
# those of a gpusort.so in the same process.  The modules are the same in each kind
# of build.
module_cppflags = $(filter-out -DGPUSORT_FAULTS,$(CPPFLAGS))
module_warnings = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers

define test_module
build/$(1)/%.o: %.c build/config
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(CFLAGS_SL) $$(module_warnings) $$(module_cppflags) -c -o $$@ $$<
build/$(1)$(DLSUFFIX): $(patsubst %.c,build/$(1)/%.o,$(2)) $(3)
	$$(CC) -shared -Wl,-Bsymbolic -o $$@ $$^ $(if $(3),-lstdc++ -lpthread)
-include $(patsubst %.c,build/$(1)/%.d,$(2))
TEST_MODULES += build/$(1)$(DLSUFFIX)
endef

$(eval $(call test_module,rowkey_test,$(call sources,test/rowkey/*.c) \
	$(patsubst %,src/key/%.c,rowkey doubt column_plan settle sample_strings few encode_values numeric text icu icu_read libc weights support)))
$(eval $(call test_module,spill_test,$(call sources,test/spill/*.c) \
	$(patsubst %,src/store/%.c,spill spill_merge spill_rows spill_file rowstore append) src/key/tuple.c $(patsubst %,src/base/%.c,memory pages shmem arena),$(CXX_OBJS)))

# Code that runs inside a query: its own ProcessInterrupts() counts the checks of
# its copy of array.c.
$(eval $(call test_module,running_test,$(call sources,test/running/*.c) \
	src/functions/array.c $(patsubst %,src/key/%.c,keytype encode) \
	$(patsubst %,src/base/%.c,memory pages check)))

# What other extensions do: a hook, and an aggregate that asks by what it is called.
$(eval $(call test_module,extension_test,$(call sources,test/extension/*.c)))

# A clock that a test can set: see test/fakeclock/clock.c.
build/fakeclock.so: test/fakeclock/clock.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -Werror -fPIC -shared -o $@ $<
TEST_MODULES += build/fakeclock.so

# A C library whose locales lie: see test/lying/collate.c.
build/lying.so: test/lying/collate.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -Werror -fPIC -shared -o $@ $< -ldl -lpthread
TEST_MODULES += build/lying.so

# A library gpusort_cuda of another version: see test/otherversion/functions.c.
build/other_version.so: test/otherversion/functions.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -Werror -fPIC -shared -o $@ $<
TEST_MODULES += build/other_version.so

# A CUDA driver without a device, and one without any function: see test/fakedriver/libcuda.c.
fake_drivers = build/fakedriver/libcuda.so.1 build/fakedriver/empty/libcuda.so.1
build/fakedriver/libcuda.so.1: test/fakedriver/libcuda.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -Werror -fPIC -shared -o $@ $<
build/fakedriver/empty/libcuda.so.1:
	@mkdir -p $(@D)
	$(CC) -shared -o $@ -x c /dev/null
TEST_MODULES += $(fake_drivers)
