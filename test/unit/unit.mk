# test/unit/unit.mk - builds and runs the unit tests: "make unit".
#
# A unit test is a C or C++ program that needs no PostgreSQL.  It prints each
# failed check and, as its last line, "N passed, M failed".  The table below
# lists what each program is linked with.  Only src/cpu/ is linked as it was
# built for gpusort.so; everything else is compiled into build/unit/.

unit_objects = $(patsubst %,build/unit/%.o,$(1))

build/unit/keybits_test: $(call unit_objects,test/unit/keybits_test)
build/unit/cpu_test: $(call unit_objects,test/unit/cpu_test src/key/encode src/base/pages) src/cpu/cpu.o src/cpu/words.o src/cpu/vqsort.o
build/unit/cpu_words_test: $(call unit_objects,test/unit/cpu_words_test src/base/pages) src/cpu/cpu.o src/cpu/words.o src/cpu/vqsort.o
build/unit/cpu_stops_test: $(call unit_objects,test/unit/cpu_stops_test src/base/pages) src/cpu/cpu.o src/cpu/words.o src/cpu/vqsort.o
build/unit/collate_test: $(call unit_objects,test/unit/collate_test src/base/pages) src/cpu/collate.o
build/unit/tied_test: $(call unit_objects,test/unit/tied_test src/key/encode src/base/pages) $(addprefix src/cpu/,tied.o cpu.o words.o vqsort.o)
build/unit/share_test: $(call unit_objects,test/unit/share_test src/base/pages) src/cpu/share.o
build/unit/large_memory_test: $(call unit_objects,test/unit/large_memory_test src/base/pages)
build/unit/large_memory_asan_test: $(call unit_objects,$(addprefix asan/,test/unit/large_memory_test src/base/pages))
build/unit/huge_page_test: $(call unit_objects,test/unit/huge_page_test src/base/pages)
build/unit/page_maker_test: $(call unit_objects,test/unit/page_maker_test src/base/pages)
build/unit/losertree_test: $(call unit_objects,test/unit/losertree_test)
build/unit/merge_path_test: $(call unit_objects,test/unit/merge_path_test)
build/unit/word_plan_test: $(call unit_objects,test/unit/word_plan_test)

UNIT_TESTS = $(addprefix build/unit/,keybits_test cpu_test cpu_words_test cpu_stops_test collate_test tied_test share_test large_memory_test large_memory_asan_test \
	huge_page_test page_maker_test losertree_test merge_path_test word_plan_test)

# This flag applies to the program's objects as well, which are its own.
build/unit/large_memory_asan_test: UNIT_FLAGS = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover

unit_compile = -O2 $(UNIT_FLAGS) -Wall -Wextra -Werror -MMD -MP -I$(srcdir)/src -I$(srcdir)/kernels -c -o $@ $<

build/unit/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(unit_compile)
build/unit/asan/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(unit_compile)
build/unit/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) -std=c++17 $(unit_compile)
$(UNIT_TESTS):
	$(CXX) $(UNIT_FLAGS) -o $@ $^ -lpthread -lm

# Shows each program's output behind its name, and the sum as the last line.  A
# program that dies prints no summary, which fails, too.
.PHONY: unit
unit: $(UNIT_TESTS)
	@for test in $(UNIT_TESTS); do $$test 2>&1 | sed "s,^,$${test##*/}: ,"; done | awk -v programs=$(words $(UNIT_TESTS)) \
		'{ print; fflush() } \
		/: [0-9]+ passed, [0-9]+ failed$$/ { passed += $$2; failed += $$4; ended++ } \
		END { failed += programs - ended; print passed " passed, " failed " failed"; exit failed > 0 }'

-include $(shell find build/unit -name '*.d' 2>/dev/null)
