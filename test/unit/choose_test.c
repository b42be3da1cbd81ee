/*
 * choose_test.c - unit tests of the values of gpusort.device (src/gpu/device_name.h) and
 * of the choice among devices (src/service/choose.h).
 */
#include "check.h"
#include "gpu/device_name.h"
#include "service/choose.h"

#define GB	((uint64_t) 1 << 30)

static const GpusortCudaListed devices[] = {
	{.name = "NVIDIA A2", .uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", .total_memory = 15 * GB},
	{.name = "NVIDIA H200", .uuid = "GPU-89f00000-d72c-4106-c12f-20bd9faed9f6", .total_memory = 140 * GB},
	{.name = "NVIDIA H200", .uuid = "GPU-c0000000-d72c-4106-c12f-20bd9faed9f6", .total_memory = 140 * GB},
	{.name = "NVIDIA P40", .uuid = "GPU-d0000000-d72c-4106-c12f-20bd9faed9f6", .total_memory = 240 * GB, .unusable = "compute capability 6.1 is below 7.5"},
	{.name = "NVIDIA A100 MIG 1g.5gb", .uuid = "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", .total_memory = 5 * GB},
};
static const uint64_t never[LENGTH(devices)];

static void
test_names(void)
{
	static const char *const valid[] = {"auto", "AUTO", "0", "15", "GPU-8", "gpu-8932F937", "MIG-8932f937-d72c",
	"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"};
	static const char *const invalid[] = {"", " ", "aut", "automatic", "-1", "+1", "1 ", "0x1", "12345", "0,1", "GPU", "GPU-", "GPU-g", "8932f937",
	"MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f60"};

	for (int i = 0; i < LENGTH(valid); i++)
		CHECK(gpusort_device_name_is_valid(valid[i]), "\"%s\" is valid", valid[i]);
	for (int i = 0; i < LENGTH(invalid); i++)
		CHECK(!gpusort_device_name_is_valid(invalid[i]), "\"%s\" is not valid", invalid[i]);
	CHECK(gpusort_device_name_is_auto("Auto") && !gpusort_device_name_is_auto("0"), "\"auto\" in any case is automatic");
}

static void
test_find(void)
{
	static const struct
	{
		const char *name;
		int			number;
	}			cases[] = {
		{"0", 0}, {"4", 4}, {"004", 4}, {"5", GPUSORT_DEVICE_NONE}, {"9999", GPUSORT_DEVICE_NONE},
		{"GPU-8932", 0}, {"gpu-89F", 1}, {"MIG-8", 4}, {"GPU-c0000000-d72c-4106-c12f-20bd9faed9f6", 2},
		{"GPU-89", GPUSORT_DEVICE_SEVERAL}, {"GPU-e", GPUSORT_DEVICE_NONE}, {"MIG-c", GPUSORT_DEVICE_NONE},
	};

	for (int i = 0; i < LENGTH(cases); i++)
		CHECK(gpusort_device_find(devices, LENGTH(devices), cases[i].name) == cases[i].number, "%s is device %d", cases[i].name, cases[i].number);
	CHECK(gpusort_device_find(devices, 0, "0") == GPUSORT_DEVICE_NONE, "an empty list has no device 0");
}

static void
test_enumerate(void)
{
	char		text[200];
	char		whole[200];
	size_t		length;

	gpusort_device_enumerate(devices, 2, whole, sizeof(whole));
	CHECK(strcmp(whole, "0 (NVIDIA A2, GPU-8932f937), 1 (NVIDIA H200, GPU-89f00000)") == 0, "two devices are \"%s\"", whole);
	length = strlen(whole);
	gpusort_device_enumerate(devices, 2, text, length + 1);
	CHECK(strcmp(text, whole) == 0, "a text that just fits is whole, not \"%s\"", text);
	gpusort_device_enumerate(devices, 2, text, length);
	CHECK(strcmp(text, "0 (NVIDIA A2, GPU-8932f937), and 1 more") == 0, "a text that does not fit is cut: \"%s\"", text);
	gpusort_device_enumerate(devices, LENGTH(devices), text, 80);
	CHECK(strcmp(text, "0 (NVIDIA A2, GPU-8932f937), 1 (NVIDIA H200, GPU-89f00000), and 3 more") == 0, "the rest is counted: \"%s\"", text);
	gpusort_device_enumerate(devices, 0, text, sizeof(text));
	CHECK(text[0] == '\0', "no device is an empty text");

	/* no room is overrun */
	for (size_t room = 1; room < sizeof(text); room++)
	{
		memset(text, '#', sizeof(text));
		gpusort_device_enumerate(devices, LENGTH(devices), text, room);
		CHECK(strlen(text) < room && text[room] == '#', "%zu bytes suffice", room);
	}
}

static int
choose(int count, const char *setting, const uint64_t *avoided_until, char *reason)
{
	reason[0] = '\0';
	return gpusort_device_choose(devices, count, setting, avoided_until, reason, 160);
}

static void
test_choose(void)
{
	char		reason[160];
	uint64_t	avoided[LENGTH(devices)] = {0};
	static const struct
	{
		const char *setting;
		const char *reason;
	}			refused[] = {
		{"7", "The device 7 (gpusort.device) was not found. The devices are 0 (NVIDIA A2, GPU-8932f937), 1 (NVIDIA H200, GPU-89f00000), and 3 more."},
		{"GPU-89", "The UUIDs of several devices begin with GPU-89 (gpusort.device). The devices are 0 (NVIDIA A2, GPU-8932f937), 1 (NVIDIA H200, GPU-89f00000), and 3 more."},
		{"3", "The device 3 (gpusort.device) cannot be used: compute capability 6.1 is below 7.5."},
		{"GPU-e932f937-d72c-4106-c12f-20bd9faed9f6", "The device GPU-e932f937-d72c-4106-c12f-20bd9faed9f6 (gpusort.device) was not found. The devices are 0 (NVIDIA A2, GPU-8932f937), and 4 more."},
	};

	for (int i = 0; i < LENGTH(refused); i++)
	{
		CHECK(choose(LENGTH(devices), refused[i].setting, never, reason) == -1, "%s is refused", refused[i].setting);
		CHECK(strcmp(reason, refused[i].reason) == 0, "%s: the reason is not \"%s\"", refused[i].setting, reason);
	}
	CHECK(choose(LENGTH(devices), "0", never, reason) == 0, "a number");
	CHECK(choose(LENGTH(devices), "MIG-8", never, reason) == 4, "the beginning of a UUID");
	CHECK(choose(LENGTH(devices), "auto", never, reason) == 1, "auto: the usable one with the most memory, of two the first");
	CHECK(choose(1, "auto", never, reason) == 0, "auto: the only one");
	CHECK(gpusort_device_choose(&devices[3], 1, "auto", never, reason, sizeof(reason)) == -1 && reason[0] != '\0', "auto: no usable one");

	/* devices that have failed */
	avoided[1] = 1000;
	CHECK(choose(LENGTH(devices), "auto", avoided, reason) == 2, "auto: another than the one that failed");
	CHECK(choose(LENGTH(devices), "1", avoided, reason) == 1, "a chosen device is taken although it failed");
	CHECK(gpusort_device_is_spare(devices, LENGTH(devices), avoided), "another can be used");
	avoided[2] = 2000;
	CHECK(choose(LENGTH(devices), "auto", avoided, reason) == 0, "auto: one with less memory that has not failed");
	avoided[0] = 3000;
	avoided[4] = 4000;
	CHECK(choose(LENGTH(devices), "auto", avoided, reason) == 1, "auto: if all have failed, the one whose time ends first");
	CHECK(!gpusort_device_is_spare(devices, LENGTH(devices), avoided), "no other can be used");
	avoided[1] = 0;
	CHECK(gpusort_device_is_spare(devices, LENGTH(devices), avoided), "one has not failed");
}

int
main(void)
{
	test_names();
	test_find();
	test_enumerate();
	test_choose();
	return check_summary();
}
