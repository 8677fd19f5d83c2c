// The stand-in for NCCL: where NCCL would hang or compute wrong values, the stand-in must report an error. Also, what
// the program does about calls that wait on a device forever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <thread>

#include "core/graph.h"
#include "dist/nccl_library.h"
#include "tests/dist/rank_processes.h"
#include "tests/dist/sum_over_ranks.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using nccl::Comm;
using nccl::Result;
using std::chrono::seconds;
using test::RankEnd;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr Device kFirst{DeviceKind::cuda, 0};

/// A rank that calls the library directly.
class Direct {
 public:
  Direct(int rank, int size, Store& store) {
    device_.index = rank;
    select(device_);
    stream_.emplace(device_);
    memory_ = DeviceMemory(device_, 4096);
    stream_->fill(memory_.data(), 0, memory_.bytes());
    nccl::UniqueId id{};
    if (rank == 0) {
      nccl_->get_unique_id(&id);
      store.set("id", {id.bytes, sizeof id.bytes});
    } else {
      std::memcpy(id.bytes, store.get("id", seconds(20))->data(), sizeof id.bytes);
    }
    nccl::Config config;
    begun_ = nccl_->comm_init_rank_config(&comm_, size, id, rank, &config);
  }
  const nccl::Functions* operator->() const { return nccl_.operator->(); }
  Comm* comm() const { return comm_; }
  void* stream() const { return stream_->handle(); }
  Stream& own_stream() { return *stream_; }
  std::byte* memory() const { return memory_.data(); }
  Result begun() const { return begun_; }
  void wait() { stream_->synchronize(); }

  Result settled() const {
    Result result = nccl::in_progress;
    while (result == nccl::in_progress) nccl_->comm_get_async_error(comm_, &result);
    return result;
  }
  Result reduce(std::size_t count, nccl::DataType type = nccl::f32) const {
    return nccl_->all_reduce(memory(), memory(), count, type, nccl::sum, comm_, stream());
  }
  std::string last_error() const { return nccl_->get_last_error(comm_); }

 private:
  NcclLibrary nccl_;
  Device device_ = kFirst;
  std::optional<Stream> stream_;
  DeviceMemory memory_;
  Comm* comm_ = nullptr;
  Result begun_ = nccl::success;
};

// The errors of two ranks that make different calls.
std::vector<RankEnd> two(const std::function<void(Direct&, int rank)>& calls) {
  return test::on_bare_processes({}, [&](int rank, Store& store) {
    Direct d(rank, 2, store);
    ASSERT_EQ(d.settled(), nccl::success);
    calls(d, rank);
    ASSERT_EQ(d.settled(), nccl::success) << d.last_error();
    d.wait();
  });
}

const auto kWell = Each(AllOf(Field(&RankEnd::error, ""), Field(&RankEnd::killed, false)));
const auto kDifferent = Each(Field(&RankEnd::error, HasSubstr("the ranks make different calls")));

TEST(NcclStandIn, EachHasItsShareOfASum) {
  const auto ends = two([](Direct& d, int rank) {
    const float mine[4] = {1.0F + rank, 2, 3, 4};
    d.own_stream().copy(d.memory(), mine, sizeof mine);
    d->reduce_scatter(d.memory(), d.memory() + 64, 2, nccl::f32, nccl::sum, d.comm(), d.stream());
    ASSERT_EQ(d.settled(), nccl::success);
    float share[2];
    d.own_stream().copy(share, d.memory() + 64, sizeof share);
    EXPECT_EQ(share[0], rank == 0 ? 3 : 6);
    EXPECT_EQ(share[1], rank == 0 ? 4 : 8);
  });
  EXPECT_THAT(ends, kWell);
}

TEST(NcclStandIn, TellsOfAnotherCount) {
  EXPECT_THAT(two([](Direct& d, int rank) { d.reduce(rank == 0 ? 8 : 9); }), kDifferent);
}

TEST(NcclStandIn, TellsOfAnotherType) {
  EXPECT_THAT(two([](Direct& d, int rank) { d.reduce(8, rank == 0 ? nccl::f32 : nccl::f64); }), kDifferent);
}

TEST(NcclStandIn, TellsOfAnotherRoot) {
  EXPECT_THAT(
      two([](Direct& d, int rank) { d->broadcast(d.memory(), d.memory(), 8, nccl::f32, rank, d.comm(), d.stream()); }),
      kDifferent);
}

TEST(NcclStandIn, TellsOfAnotherOrder) {
  EXPECT_THAT(two([](Direct& d, int rank) {
                d->group_start();
                if (rank == 0) d.reduce(8);
                d->all_gather(d.memory(), d.memory() + 1024, 8, nccl::f32, d.comm(), d.stream());
                if (rank == 1) d.reduce(8);
                d->group_end();
              }),
              kDifferent);
}

TEST(NcclStandIn, TellsOfMemoryThatIsNotTheDevices) {
  const auto ends = two([](Direct& d, int) {
    static float host[8];
    d->all_reduce(host, host, 8, nccl::f32, nccl::sum, d.comm(), d.stream());
  });
  EXPECT_THAT(ends, Each(Field(&RankEnd::error, HasSubstr("memory that is not the device's"))));
}

TEST(NcclStandIn, TellsOfCallsInTheWrongState) {
  const auto ends = test::on_bare_processes({.size = 1}, [](int, Store& store) {
    Direct d(0, 1, store);
    EXPECT_EQ(d.begun(), nccl::in_progress);
    ASSERT_EQ(d.settled(), nccl::success);
    EXPECT_EQ(d->group_end(), nccl::invalid_usage);
    EXPECT_EQ(d->all_gather(d.memory(), d.memory() + 4, 8, nccl::f32, d.comm(), d.stream()), nccl::invalid_argument);
  });
  EXPECT_THAT(ends, kWell);
}

TEST(NcclStandIn, TellsOfACallThatDidNotWaitForTheOneBefore) {
  const auto ends = test::on_bare_processes({.size = 1}, [](int, Store& store) {
    Direct d(0, 1, store);
    ASSERT_EQ(d.settled(), nccl::success);
    EXPECT_EQ(d.reduce(8), nccl::in_progress);
    EXPECT_EQ(d.reduce(8), nccl::invalid_argument);
    EXPECT_THAT(d.last_error(), HasSubstr("before the previous one"));
  });
  EXPECT_THAT(ends, kWell);
}

TEST(NcclStandIn, TellsOfAGroupThatIsRecordedInPart) {
  const auto ends = test::on_bare_processes({.size = 1}, [](int, Store& store) {
    Direct d(0, 1, store);
    ASSERT_EQ(d.settled(), nccl::success);
    Stream other(kFirst);
    const Graph graph(d.own_stream(), "part of a group", [&] {
      d->group_start();
      d.reduce(8);
      d->all_gather(d.memory(), d.memory() + 64, 8, nccl::f32, d.comm(), other.handle());
      EXPECT_EQ(d->group_end(), nccl::invalid_usage);
    });
    EXPECT_THAT(d.last_error(), HasSubstr("mixes streams that are being captured with others"));
  });
  EXPECT_THAT(ends, kWell);
}

enum class Wait : std::uint8_t { yes, no };

// A sum on one stream, then a sum of other numbers on another stream.
std::vector<RankEnd> on_two_streams(Wait wait) {
  return test::on_bare_processes({.size = 1}, [&](int, Store& store) {
    Direct d(0, 1, store);
    ASSERT_EQ(d.settled(), nccl::success);
    Stream other(kFirst);
    Event cleared(kFirst), added(kFirst);
    d.own_stream().record(cleared);
    d.reduce(8);
    ASSERT_EQ(d.settled(), nccl::success);
    d.own_stream().record(added);
    other.wait(wait == Wait::yes ? added : cleared);
    d->all_reduce(d.memory() + 1024, d.memory() + 1024, 8, nccl::f32, nccl::sum, d.comm(), other.handle());
    EXPECT_EQ(d.settled(), nccl::success);
    other.synchronize();
  });
}

TEST(NcclStandIn, CallsMayBeOnStreamsThatWaitForEachOther) {
  EXPECT_THAT(on_two_streams(Wait::yes), kWell);
}

// NCCL itself makes such calls wait for each other, but the order may differ between two ranks.
TEST(NcclStandIn, TellsOfCallsOnStreamsThatDoNot) {
  EXPECT_THAT(on_two_streams(Wait::no),
              Each(Field(&RankEnd::error, HasSubstr("race of streams: 'NCCL' writes what 'NCCL' of another stream"))));
}

// Other ranks may make the calls in a different order, and then two ranks would wait for each other.
TEST(NcclStandIn, TellsOfTwoCommunicatorsOnStreamsThatDoNot) {
  const auto ends = test::on_processes({}, [](Ctx& ctx, Collective& ranks) {
    const auto part = ranks.part(ranks.rank(), 1);
    const DeviceMemory memory(ctx.device(), 64);
    const Tensor values{memory.data(), DType::f32, {16}, ctx.device()};
    ctx.stream().fill(values.data, 0, values.bytes());
    ctx.synchronize();
    Ctx other(ctx.device(), MatmulPrecision::storage, 1);
    ranks.all_reduce(ctx, values.slice(0, 8), Reduction::sum);
    part->all_reduce(other, values.slice(8, 8), Reduction::sum);
    ctx.synchronize();
    other.synchronize();
  });
  EXPECT_THAT(ends, Each(Field(&RankEnd::error, HasSubstr("race of streams: 'NCCL' writes what 'NCCL' of another"))));
}

TEST(NcclStandIn, DropsAGroupOfWhichOneCallIsWrong) {
  const auto ends = test::on_bare_processes({.size = 1}, [](int, Store& store) {
    Direct d(0, 1, store);
    ASSERT_EQ(d.settled(), nccl::success);
    const float mine[2] = {3, 4};
    d.own_stream().copy(d.memory(), mine, sizeof mine);
    d->group_start();
    d->broadcast(d.memory(), d.memory() + 64, 2, nccl::f32, 0, d.comm(), d.stream());
    d->send(d.memory(), 2, nccl::f32, 7, d.comm(), d.stream());
    EXPECT_EQ(d->group_end(), nccl::invalid_argument);
    float got[2] = {-1, -1};
    d.own_stream().copy(got, d.memory() + 64, sizeof got);
    EXPECT_EQ(got[0], 0) << "the broadcast took place";
  });
  EXPECT_THAT(ends, kWell);
}

TEST(NcclStandIn, TellsOfUseAfterItsEnd) {
  const auto ends = test::on_bare_processes({.size = 1}, [](int, Store& store) {
    Direct d(0, 1, store);
    ASSERT_EQ(d.settled(), nccl::success);
    d->comm_abort(d.comm());
    EXPECT_EQ(d.reduce(8), nccl::invalid_argument);
    EXPECT_EQ(d->comm_destroy(d.comm()), nccl::invalid_argument);
  });
  EXPECT_THAT(ends, kWell);
}

TEST(NcclStandIn, RanksOnOneDeviceAreRefused) {
  const auto ends = test::on_processes({.devices = 1}, [](Ctx&, Collective&) {});
  EXPECT_THAT(ends, Each(Field(&RankEnd::error, HasSubstr("Duplicate GPU detected"))));
}

TEST(NcclStandIn, UnlessTheySayThatTheyAreOnOtherMachines) {
  const auto ends = test::on_processes({.devices = 1, .hosts = 2}, [](Ctx& ctx, Collective& ranks) {
    EXPECT_EQ(test::sum_over_ranks(ctx, ranks, 1), 2);
  });
  EXPECT_THAT(ends, kWell);
}

// A rank is lost while the stream of the other one waits for it.
TEST(NcclOnTheDevice, AWaitForARankThatIsGoneEnds) {
  const auto ends = test::on_processes({.timeout = seconds(2)}, [](Ctx& ctx, Collective& ranks) {
    const DeviceMemory memory(ctx.device(), 32);
    const Tensor values{memory.data(), DType::f32, {8}, ctx.device()};
    ctx.stream().fill(values.data, 0, values.bytes());
    ctx.synchronize();
    ranks.all_reduce(ctx, values, Reduction::sum);
    if (ranks.rank() == 1) ::raise(SIGKILL);
    ctx.synchronize();
  });
  EXPECT_THAT(ends[0].error,
              AllOf(HasSubstr("rank 1 did not reach ncclAllReduce of 8 float32"), HasSubstr("no sign of life")));
}

// The ranks agree on nothing that was computed without a missing rank's data.
TEST(NcclOnTheDevice, NothingIsAgreedOnAfterACallThatWasGivenUp) {
  const auto ends = test::on_processes({.timeout = seconds(2)}, [](Ctx& ctx, Collective& ranks) {
    const DeviceMemory memory(ctx.device(), 32);
    const Tensor values{memory.data(), DType::f32, {8}, ctx.device()};
    ctx.stream().fill(values.data, 0, values.bytes());
    ranks.all_reduce(ctx, values, Reduction::sum);
    Event behind(ctx.device());
    ctx.stream().record(behind);
    if (ranks.rank() == 0) behind.synchronize();                     // this does not report the error
    if (ranks.rank() == 1) std::this_thread::sleep_for(seconds(3));  // not too late for the hosts
    EXPECT_THROW(ranks.barrier(ctx), Error);
  });
  EXPECT_THAT(ends, kWell);
}

TEST(NcclOnTheDevice, ALateRankIsNamedAlone) {
  const auto ends = test::on_processes({.size = 3, .timeout = seconds(2)}, [](Ctx& ctx, Collective& ranks) {
    const DeviceMemory memory(ctx.device(), 32);
    const Tensor values{memory.data(), DType::f32, {8}, ctx.device()};
    ctx.stream().fill(values.data, 0, values.bytes());
    ranks.all_reduce(ctx, values, Reduction::sum);
    if (ranks.rank() == 1) return std::this_thread::sleep_for(seconds(8));
    ctx.synchronize();
  });
  // The message of either rank may come first; the other one then refers to it.
  const auto named = AllOf(HasSubstr("rank 1 did not reach ncclAllReduce of 8 float32"), HasSubstr("still computing"));
  const auto pointed = HasSubstr("ended with an error, as its own message says");
  EXPECT_TRUE(::testing::Matches(named)(ends[0].error) || ::testing::Matches(named)(ends[2].error));
  for (const std::size_t r : {0, 2}) EXPECT_THAT(ends[r].error, AnyOf(named, pointed));
}

// Rank 0 waits for rank 1 in a collective of their part; the collective of all ranks that is queued after it must not
// be waited for either.
TEST(NcclOnTheDevice, ACallOfAPartThatIsGivenUpEndsAll) {
  const auto ends = test::on_processes({.size = 3, .timeout = seconds(2)}, [](Ctx& ctx, Collective& ranks) {
    const auto part = ranks.part(ranks.rank() < 2 ? 0 : 2, ranks.rank() < 2 ? 2 : 1);
    const DeviceMemory memory(ctx.device(), 64);
    const Tensor values{memory.data(), DType::f32, {16}, ctx.device()};
    ctx.stream().fill(values.data, 0, values.bytes());
    ctx.synchronize();
    part->all_reduce(ctx, values.slice(0, 8), Reduction::sum);
    ranks.all_reduce(ctx, values, Reduction::sum);
    if (ranks.rank() == 1) ::raise(SIGKILL);
    ctx.synchronize();
  });
  const auto pointed = HasSubstr("ended with an error, as its own message says");
  const auto named = [](int elements) {
    return AllOf(HasSubstr("rank 1 did not reach ncclAllReduce of " + std::to_string(elements) + " float32"),
                 HasSubstr("no sign of life"));
  };
  EXPECT_THAT(ends[0].error, AnyOf(named(8), pointed));
  EXPECT_THAT(ends[2].error, AnyOf(named(16), pointed));
  EXPECT_TRUE(::testing::Matches(named(8))(ends[0].error) || ::testing::Matches(named(16))(ends[2].error));
}

// No rank is blamed for this.
TEST(NcclOnTheDevice, NothingIsWaitedForAfterAnEnd) {
  const auto ends = test::on_processes({.timeout = seconds(60)}, [](Ctx& ctx, Collective& ranks) {
    const auto part = ranks.part(0, 2);
    const DeviceMemory memory(ctx.device(), 32);
    const Tensor values{memory.data(), DType::f32, {8}, ctx.device()};
    ctx.stream().fill(values.data, 0, values.bytes());
    ctx.synchronize();
    if (ranks.rank() == 0) ranks.all_reduce(ctx, values, Reduction::sum);
    ranks.disconnect();
    const std::string error = test::error_of(ErrorKind::peer, [&] {
      ranks.rank() == 0 ? ctx.synchronize() : part->all_reduce(ctx, values, Reduction::sum);
    });
    EXPECT_THAT(error, HasSubstr("failed: the ranks have disconnected"));
  });
  EXPECT_THAT(ends, kWell);
}

TEST(NcclStandIn, TellsOfTwoThatAreTheSameRank) {
  const auto ends = test::on_bare_processes({.size = 2}, [](int rank, Store& store) {
    nccl::UniqueId id{};
    const NcclLibrary library;
    if (rank == 0) {
      library->get_unique_id(&id);
      store.set("id", {id.bytes, sizeof id.bytes});
    } else {
      std::memcpy(id.bytes, store.get("id", seconds(20))->data(), sizeof id.bytes);
    }
    select({DeviceKind::cuda, rank});
    Comm* comm = nullptr;
    nccl::Config config;
    Result result = library->comm_init_rank_config(&comm, 2, id, 1, &config);
    const auto end = std::chrono::steady_clock::now() + seconds(3);  // the rank that comes first waits for rank 0
    while (result == nccl::in_progress && std::chrono::steady_clock::now() < end)
      library->comm_get_async_error(comm, &result);
    store.set("refused " + std::to_string(rank), result == nccl::invalid_usage ? "yes" : "no");
    const std::string other = *store.get("refused " + std::to_string(1 - rank), seconds(20));
    EXPECT_NE(result == nccl::invalid_usage, other == "yes");
    library->comm_abort(comm);
  });
  EXPECT_THAT(ends, kWell);
}

// The stream waits at the failed call; healthy ranks are not blamed.
TEST(NcclOnTheDevice, AnErrorOfTheNetworkIsToldAsWhatItIs) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ends = test::on_processes({.timeout = seconds(60), .variables = {"QTRAIN_STAND_IN_NCCL_FAILS=8"}},
                                       [](Ctx& ctx, Collective& ranks) {
                                         const DeviceMemory memory(ctx.device(), 32);
                                         const Tensor values{memory.data(), DType::f32, {8}, ctx.device()};
                                         ctx.stream().fill(values.data, 0, values.bytes());
                                         for (int i = 0; i < 10; ++i) ranks.all_reduce(ctx, values, Reduction::sum);
                                         ctx.synchronize();
                                       });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  const auto told = AllOf(HasSubstr("ncclAllReduce of 8 float32 failed: "), HasSubstr("a connection was closed"));
  const auto pointed = HasSubstr("ended with an error, as its own message says");
  EXPECT_TRUE(::testing::Matches(told)(ends[0].error) || ::testing::Matches(told)(ends[1].error)) << ends[0].error;
  for (const RankEnd& end : ends) EXPECT_THAT(end.error, AnyOf(told, pointed));
}

TEST(NcclOnTheDevice, CallsAreNotRecorded) {
  const auto ends = test::on_processes({}, [](Ctx& ctx, Collective& ranks) {
    const DeviceMemory memory(ctx.device(), 32);
    const Tensor values{memory.data(), DType::f32, {8}, ctx.device()};
    const Graph graph(ctx.stream(), "exchange", [&] { ranks.all_reduce(ctx, values, Reduction::sum); });
  });
  EXPECT_THAT(ends, Each(Field(&RankEnd::error, HasSubstr("a call that waits for other ranks cannot be recorded"))));
}

TEST(NcclLibrary, AnOldOneIsRefused) {
  const auto ends =
      test::on_bare_processes({.size = 1, .variables = {"QTRAIN_STAND_IN_NCCL_VERSION=2708"}}, [](int, Store&) {
        EXPECT_THAT(nccl_state().problem, HasSubstr("2.7.8"));
        const NcclLibrary library;
      });
  EXPECT_THAT(ends[0].error, AllOf(HasSubstr("NCCL 2.7.8"), HasSubstr("nccl_stand_in/libnccl.so.2"),
                                   HasSubstr("2.18.0 or newer is needed"), HasSubstr("LD_LIBRARY_PATH")));
}

}  // namespace
}  // namespace qtrain
