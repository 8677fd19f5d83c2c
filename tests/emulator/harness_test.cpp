#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "emulator/device.h"
#include "tests/emulator/planted.h"
#include "tests/errors.h"

namespace qtrain::testing {
namespace {

using emulation::Order;
using emulation::Settings;
using emulation::Timing;

/// Settings for one test; whether kernels come from the C++ compiler or nvcc stays the same.
class Schedule {
 public:
  explicit Schedule(const Settings& s) : before_(emulation::settings()) {
    emulation::settings() = s;
    emulation::settings().ptx = before_.ptx;
  }
  ~Schedule() { emulation::settings() = before_; }

 private:
  Settings before_;
};

/// The orders in which every program runs. Copies that happen early hide mistakes, so they are only for correct
/// programs.
std::vector<Settings> schedules() {
  std::vector<Settings> list;
  for (const Order order : {Order::forward, Order::reverse}) list.push_back({.order = order, .host_threads = 1});
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    list.push_back({.order = Order::random, .seed = seed, .host_threads = static_cast<int>(seed)});
  return list;
}

std::vector<Planted> planted() {
  std::vector<Planted> all = planted_in_blocks();
  for (const auto& more :
       {planted_in_memory(), planted_in_tiles(), planted_in_warpgroups(), planted_in_mbarriers(), planted_in_streams()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Harness : public ::testing::TestWithParam<Planted> {};

constexpr Device kCuda{DeviceKind::cuda, 0};

TEST(SeveralDevices, WorkOnTheStreamOfAnotherThanTheSelectedIsNamed) {
  const Schedule schedule({.devices = 2});
  const Device second{DeviceKind::cuda, 1};
  Stream stream(second);
  const DeviceMemory memory(second, 8);
  stream.fill(memory.data(), 0, memory.bytes());
  stream.synchronize();
  select(kCuda);
  EXPECT_THAT(test::error_of(ErrorKind::internal, [&] { stream.fill(memory.data(), 0, memory.bytes()); }),
              ::testing::HasSubstr("fill is queued on a stream of device 1 while device 0 is the thread's"));
  EXPECT_THAT(test::error_of(ErrorKind::usage,
                             [&] {
                               select({DeviceKind::cuda, 2});
                             }),
              ::testing::HasSubstr("there is no CUDA device 2"));
}

TEST(Events, ALookFromOutsideRunsNothing) {
  const Schedule schedule({});
  Stream stream(kCuda);
  Event event(kCuda);
  stream.record(event);
  EXPECT_FALSE(event.has_passed());
  EXPECT_FALSE(event.has_passed());
  stream.synchronize();
  EXPECT_TRUE(event.has_passed());
}

TEST_P(Harness, RightProgramsRunInEveryOrder) {
  std::vector<Settings> all = schedules();
  for (const Timing copies : {Timing::early, Timing::random})
    for (const Timing streams : {Timing::early, Timing::random})
      all.push_back({.order = Order::random, .streams = streams, .copies = copies});
  for (const Settings& s : all) {
    const Schedule schedule(s);
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    EXPECT_EQ(GetParam().run(ctx, Variant::right), GetParam().result);
  }
}

TEST_P(Harness, MistakesAreNamed) {
  if (!emulation::kStates) GTEST_SKIP() << "the sanitizer of this build would end the program";
  if (GetParam().compiled_away && !emulation::settings().ptx.empty()) GTEST_SKIP() << "nvcc's code does not show it";
  for (const Settings& s : schedules()) {
    const Schedule schedule(s);
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    if (GetParam().complaint.empty()) {
      EXPECT_NE(GetParam().run(ctx, Variant::wrong), GetParam().result);
      continue;
    }
    const std::string complaint = test::error_of([&] { GetParam().run(ctx, Variant::wrong); }).what();
    // The expectation lists alternatives, because the order decides which of two consequences comes first.
    bool found = false;
    for (std::size_t begin = 0; begin <= GetParam().complaint.size();) {
      const std::size_t end = std::min(GetParam().complaint.find('|', begin), GetParam().complaint.size());
      found = found || complaint.find(GetParam().complaint.substr(begin, end - begin)) != complaint.npos;
      begin = end + 1;
    }
    EXPECT_TRUE(found) << complaint;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Harness, ::testing::ValuesIn(planted()),
                         [](const auto& info) { return info.param.name; });

TEST(DeviceMemoryDeathTest, IsLockedForTheHost) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const Floats x(ctx, counting(4));
  ctx.synchronize();
  EXPECT_DEATH(
      {
        volatile float value = x.data()[1];
        static_cast<void>(value);
      },
      "");
}

TEST(DeviceMemoryTest, EndsWithAnErrorThatNamesThePurpose) {
  const Schedule schedule({.memory_bytes = 1 << 20});
  EXPECT_THAT(test::error_of(ErrorKind::memory, [] { const DeviceMemory memory(kCuda, 2 << 20, "activations"); }),
              ::testing::HasSubstr("2 MiB for activations"));
}

TEST(OldDevice, RefusesWhatItsInstructionsAndMemoryCannotDo) {
  const Schedule schedule({.capability = 75});
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  EXPECT_EQ(cuda_info().shared_bytes, std::size_t{64} << 10);
  for (const Planted& p : planted_in_tiles())
    EXPECT_THAT(test::error_of([&] { p.run(ctx, Variant::right); }).what(),
                ::testing::HasSubstr("needs compute capability 8.0, the device has 7.5"))
        << p.name;
}

TEST(OldDevice, IsTooOldBelowTuring) {
  for (const auto& [capability, problem] : {std::pair{70, "7.5 (Turing) or newer is needed"}, {75, ""}}) {
    const Schedule schedule({.capability = capability});
    EXPECT_THAT(cuda_problem(), ::testing::HasSubstr(problem));
    EXPECT_EQ(cuda_problem().empty(), capability == 75);
  }
}

TEST(EmulationSettings, AreAList) {
  const Settings s =
      emulation::parse_settings("order=random,seed=7,streams=early,copies=random,threads=3,memory=1000,capability=75");
  EXPECT_EQ(s.order, Order::random);
  EXPECT_EQ(s.streams, Timing::early);
  EXPECT_EQ(s.copies, Timing::random);
  EXPECT_EQ(s.seed, 7u);
  EXPECT_EQ(s.host_threads, 3);
  EXPECT_EQ(s.memory_bytes, 1000u);
  EXPECT_EQ(s.capability, 75);
  for (const char* text : {"order", "order=backwards", "seed=x", "speed=3", "order=random;seed=1"})
    EXPECT_THROW(emulation::parse_settings(text), Error) << text;
}

TEST(Launches, AreNamedWhenAStreamFails) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const Planted& p : planted_in_blocks())
    if (p.name == "barrier_for_some") {
      EXPECT_THAT(test::error_of([&] { p.run(ctx, Variant::wrong); }).what(),
                  ::testing::HasSubstr("last launches: barrier_for_some"));
      EXPECT_EQ(ctx.stream().recent_launches(), "barrier_for_some");
    }
}

}  // namespace
}  // namespace qtrain::testing
