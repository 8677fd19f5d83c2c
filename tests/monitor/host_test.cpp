// What the monitor reads from /proc and /sys, using files that the test writes.
#include "monitor/host.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/os/file.h"
#include "monitor/sample.h"
#include "tests/core/temp_folder.h"

namespace qtrain::monitor {
namespace {

namespace fs = std::filesystem;

class FakeHost : public ::testing::Test {
 protected:
  FakeHost() {
    put("proc/stat",
        "cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 50 0 25 400 25 0 0 0 0 0\nintr 1\n");
    put("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\n");
  }
  void put(const fs::path& file, const std::string& text) {
    fs::create_directories((folder_ / file).parent_path());
    write_file(folder_ / file, text);
  }
  void process(int pid, int parent, int ticks, int started = 5, const std::string& name = "job") {
    put(fmt::format("proc/{}/stat", pid), fmt::format("{} ({}) S {} 1 1 0 0 0 0 0 0 0 {} 0 0 0 20 0 1 0 {} 99 10 0\n",
                                                      pid, name, parent, ticks, started));
  }
  HostReading at(double seconds, std::optional<std::int64_t> watched = {}) { return host_.read(seconds, watched); }

  qtrain::testing::TempFolder folder_;
  Host host_{folder_.path()};
};

// A process that has the file open, for example to read it, need not be the one that holds the lock.
TEST_F(FakeHost, TheHolderOfALock) {
  put("run/.lock", "");
  const auto opens = [&](int pid, const std::string& info) {
    process(pid, 1, 7);
    put(fmt::format("proc/{}/fdinfo/3", pid), "pos:\t0\n" + info);
    fs::create_directories(folder_ / fmt::format("proc/{}/fd", pid));
    fs::create_symlink(fs::canonical(folder_ / "run/.lock"), folder_ / fmt::format("proc/{}/fd/3", pid));
  };
  opens(20, "");
  EXPECT_FALSE(host_.holder_of(folder_ / "run/.lock"));
  opens(30, "lock:\t1: FLOCK  ADVISORY  WRITE 30 fe:00:10953388 0 EOF\n");
  EXPECT_EQ(host_.holder_of(folder_ / "run/.lock"), 30);
}

TEST_F(FakeHost, ProcessorsAndMemory) {
  const HostReading before = at(0);
  EXPECT_EQ(before.processors, 2);
  EXPECT_EQ(before.memory_used, 600 * 1024.0);
  put("proc/stat", "cpu  130 0 50 840 80 0 0 0\ncpu0 0\ncpu1 0\n");  // 30 of 100 ticks are busy, 30 wait for a disk
  EXPECT_EQ(host_values(before, at(2), 100).at("cpu_percent"), 30);
}

TEST_F(FakeHost, AProcessAndWhatItHasStarted) {
  process(10, 1, 100, 5, "a (strange) name");
  process(11, 10, 50);
  process(12, 11, 30);
  process(20, 1, 7);
  put("proc/11/io", "rchar: 9\nread_bytes: 1000\nwrite_bytes: 10\n");
  const HostReading before = at(0, 10);
  ASSERT_EQ(before.processes.size(), 3u);
  EXPECT_EQ(before.processes[0].name, "a (strange) name");
  process(10, 1, 150, 5);
  process(12, 11, 40, 99);  // another process with the same id
  process(13, 10, 10);      // new
  put("proc/11/io", "read_bytes: 5000\nwrite_bytes: 10\n");
  const Values v = host_values(before, at(2, 10), 100);
  EXPECT_EQ(v.at("process_cpu_cores"), (50 + 0 + 40 + 10) / 100.0 / 2);
  EXPECT_EQ(v.at("process_read_bytes_per_second"), 2000);
  EXPECT_EQ(v.at("process_write_bytes_per_second"), 0);
}

// Some files in /proc can be opened but not read; a folder stands in for them.
TEST_F(FakeHost, FiguresThatCannotBeReadAreLeftOut) {
  process(10, 1, 100);
  for (const char* file : {"proc/10/io", "proc/10/cgroup", "proc/net/dev", "proc/diskstats"}) {
    const HostReading before = at(0, 10);
    fs::create_directories(folder_ / file);
    const HostReading now = at(1, 10);
    ASSERT_EQ(now.processes.size(), 1u) << file;
    const Values v = host_values(before, now, 100);
    EXPECT_FALSE(v.contains("process_read_bytes_per_second")) << file;
    EXPECT_EQ(v.at("process_cpu_cores"), 0) << file;
  }
  fs::remove(folder_ / "proc/10/stat");
  fs::create_directories(folder_ / "proc/10/stat");
  EXPECT_TRUE(at(2, 10).processes.empty());
}

TEST_F(FakeHost, AProcessThatVanishesIsNone) {
  process(10, 1, 100);
  process(11, 10, 100);
  const HostReading before = at(0, 10);
  fs::remove_all(folder_ / "proc/11");
  EXPECT_EQ(host_values(before, at(1, 10), 100).at("process_cpu_cores"), 0);
  fs::remove_all(folder_ / "proc/10");
  EXPECT_FALSE(host_values(before, at(2, 10), 100).contains("process_cpu_cores"));
  EXPECT_EQ(host_.process(10), std::nullopt);
  put("proc/10/stat", "10 (job) Z 1 1 1 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 5 99 10 0\n");
  EXPECT_EQ(host_.process(10), std::nullopt) << "nobody has waited for it yet";
  put("proc/10/stat", "10 (jo");
  EXPECT_EQ(host_.process(10), std::nullopt);
}

TEST_F(FakeHost, DisksCountOnceAndDevicesNotTheirBridges) {
  fs::create_directories(folder_ / "sys/block/sda");
  fs::create_directories(folder_ / "sys/block/dm-0");
  put("proc/diskstats", "8 0 sda 1 0 10 0 1 0 20 0\n8 1 sda1 1 0 10 0 1 0 20 0\n253 0 dm-0 1 0 10 0 1 0 20 0\n");
  const std::string dev = "head\n lo: 9 0 0 0 0 0 0 0 9 0\neth0: 100 0 0 0 0 0 0 0 50 0\nbr0: 100 0 0 0 0 0 0 0 50 0\n";
  put("proc/net/dev", dev);
  EXPECT_EQ(at(0).disk_read, 5120u);
  EXPECT_EQ(at(0).disk_written, 10240u);
  EXPECT_EQ(at(0).network_in, 200u) << "only interfaces of a container";
  fs::create_directories(folder_ / "sys/class/net/eth0/device");
  EXPECT_EQ(at(0).network_in, 100u);
  EXPECT_EQ(at(0).network_out, 50u);
}

TEST(CountedSince, AWrapCountsOnAndAResetDoesNot) {
  EXPECT_EQ(counted_since(5, 12), 7u);
  EXPECT_EQ(counted_since(0xffffff00u, 0x10), 0x110u);
  EXPECT_EQ(counted_since(1000, 10), std::nullopt) << "a new device";
  EXPECT_EQ(counted_since(std::uint64_t{1} << 40, 10), std::nullopt) << "no counter of 64 bits wraps";
}

TEST_F(FakeHost, ACounterThatWentBackGivesNoRate) {
  const std::string line = "eth0: {} 0 0 0 0 0 0 0 0 0\n";
  put("proc/net/dev", fmt::format(fmt::runtime(line), 1000));
  const HostReading before = at(0);
  put("proc/net/dev", fmt::format(fmt::runtime(line), 10));
  EXPECT_FALSE(host_values(before, at(1), 100).contains("network_in_bytes_per_second"));
}

TEST_F(FakeHost, TheTightestGroupLimits) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/memory.max", "500000\n");
  put("sys/fs/cgroup/a/memory.current", "300000\n");
  put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n");
  put("sys/fs/cgroup/a/b/memory.max", "700000\n");
  put("sys/fs/cgroup/memory.max", "max\n");
  put("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nnr_periods 100\nnr_throttled 10\n");
  put("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  const HostReading before = at(0);
  EXPECT_EQ(before.usable_cores(), 1.5);
  EXPECT_EQ(before.usable_memory(), 500000);
  put("sys/fs/cgroup/a/b/cpu.stat", "nr_periods 110\nnr_throttled 14\n");
  const Values v = host_values(before, at(1), 100);
  EXPECT_EQ(v.at("memory_used_bytes"), 200000);
  EXPECT_EQ(v.at("cpu_throttled_percent"), 40);
}

TEST_F(FakeHost, GroupsOfVersionOneLimitToo) {
  put("proc/self/cgroup", "4:cpu,cpuacct:/job\n3:memory:/job\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "800000\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  const HostReading reading = at(0);
  EXPECT_EQ(reading.usable_memory(), 800000);
  EXPECT_EQ(reading.usable_cores(), 0.5);
  EXPECT_EQ(reading.group.memory_used, 1000);
}

TEST_F(FakeHost, WhereNothingIsToBeReadThereAreNoFigures) {
  const Host empty(folder_ / "nowhere");
  const HostReading a = empty.read(0, 5), b = empty.read(1, 5);
  EXPECT_EQ(a.processors, 1);
  EXPECT_FALSE(host_values(a, b, 100).contains("cpu_percent"));
  EXPECT_TRUE(host_values(a, a, 100).empty()) << "no time has passed";
}

}  // namespace
}  // namespace qtrain::monitor
