// Runs on two machines.
#include <fmt/format.h>
#include <signal.h>

#include <list>
#include <span>

#include "tests/e2e/hosts.h"

namespace qtrain::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using std::string_literals::operator""s;

class Hosts : public OnTwoHosts<Ranks> {
 protected:
  Json config() const {
    Json config = tiny_run(folder_ / "out");
    config.update(
        {{"per_device_train_batch_size", 1}, {"gradient_accumulation_steps", 4}, {"deterministic_reduce", true}});
    return config;
  }
  /// Bytes that have left the first machine.
  static double sent() {
    const TempFolder folder;
    shell(fmt::format("ip netns exec {} cat /sys/class/net/left/statistics/tx_bytes > {}", host(0),
                      (folder / "bytes").string()));
    return std::stod(read_text(folder / "bytes"));
  }
  Json shared(Json config) const {
    config["gradient_accumulation_steps"] = 1;
    return config;
  }
};

TEST_F(Hosts, TrainOneModel) {
  train_ok(folder_.path(), config());
  const std::string whole = bytes_of(folder_ / "out/model.safetensors");
  fs::remove_all(folder_ / "out");
  Process zero(on_host(0, shared(config()))), one(on_host(1, shared(config())));
  const Outcome of_zero = zero.wait(), of_one = one.wait();
  EXPECT_EQ(of_zero.code, 0) << of_zero.err;
  EXPECT_EQ(of_one.code, 0) << of_one.err;
  EXPECT_EQ(bytes_of(folder_ / "out/model.safetensors"), whole);
}

// State is sharded within each machine, so only sums of gradients cross the cable. With two ranks on each, the first
// ranks of both add one half, the second ranks the other, so a machine sends the gradients once. Sharding across all
// four ranks sends more. In either case the bits are those of one rank.
TEST_F(Hosts, OfGroupsSendGradientsAlone) {
  write_untrained_model(folder_ / "model");
  Json model = read_json(folder_ / "model/config.json");
  model.update({{"hidden_size", 128}, {"intermediate_size", 256}, {"num_hidden_layers", 4}});
  write_file(folder_ / "model/config.json", dump_json(model));
  Json config = this->config();
  config.update({{"model_name_or_path", (folder_ / "model").string()}, {"random_init", true}, {"logging_steps", 100}});
  train_ok(folder_.path(), config);
  const std::string whole = bytes_of(folder_ / "out/model.safetensors");
  double weights = 0;
  for (const auto& [name, values] : tensors_of(folder_ / "out"))
    weights += sizeof(float) * static_cast<double>(values.size());
  config = shared(config);
  config["zero_stage"] = 3;
  const auto run = [&](const Json& c) {
    fs::remove_all(folder_ / "out");
    const double before = sent();
    Process zero(on_host(0, c)), one(on_host(1, c));
    const Outcome of_zero = zero.wait();
    EXPECT_EQ(of_zero.code, 0) << of_zero.err;
    EXPECT_EQ(one.wait().code, 0);
    return sent() - before;
  };
  const auto of_an_update = [&](Json c) {
    c.update({{"deterministic_reduce", false}, {"max_steps", 2}});
    const double few = run(c);
    c["max_steps"] = 10;
    return (run(c) - few) / 8;
  };
  const double all = of_an_update(config);
  config["zero_group_size"] = -1;
  const double groups = of_an_update(config);
  // The bounds allow for TCP headers, comparisons of calls, padding of rows, and retransmitted packets.
  EXPECT_GT(groups, weights * 0.97);
  EXPECT_LT(groups, weights * 1.15);
  EXPECT_GT(all, groups * 1.5);
  run(config);
  EXPECT_EQ(bytes_of(folder_ / "out/model.safetensors"), whole);
}

/// Addresses of the first machine as each machine writes them. `names` are lines of both machines' /etc/hosts.
struct MeetingPoint {
  const char *of_zero, *of_one;
  std::string names = {};
};

class MeetingHosts : public Hosts {
 protected:
  /// A machine of the run with this number, which has folders and a port of its own.
  Launch at_point(int n, const MeetingPoint& point, int number) const {
    constexpr int kFirstPort = 29600;
    const fs::path folder = folder_ / std::to_string(number);
    fs::create_directories(folder);
    write_file(folder / "hosts", "127.0.0.1 localhost\n" + point.names);
    Json config = shared(this->config());
    config.update({{"max_steps", 1},
                   {"output_dir", (folder / "out").string()},
                   {"master_addr", n == 0 ? point.of_zero : point.of_one},
                   {"master_port", kFirstPort + number},
                   {"ddp_timeout", 60}});
    Launch launch = on_host(n, config, 1);
    const std::string with_names =
        fmt::format("mount --bind {} /etc/hosts && exec \"$0\" \"$@\"", (folder / "hosts").string());
    launch.argv.insert(launch.argv.begin() + 4, {"/bin/sh", "-c", with_names});
    return launch;
  }
};

TEST_F(MeetingHosts, MeetAtAnyOfTheirAddresses) {
  for (const int n : {0, 1})
    if (!shell(
            fmt::format("ip -n {0} addr add fd77::{1}/64 dev {2} nodad && ip -n {0} addr add fe80::77:{1}/64 dev {2} "
                        "nodad",
                        host(n), n + 1, n == 0 ? "left" : "right")))
      GTEST_SKIP() << "there is no IPv6 here";
  const std::string v4 = "10.77.0.1 head\n", v6 = "fd77::1 head\n", own = "127.0.1.1 head\n";
  const MeetingPoint points[] = {{"fd77::1", "[fd77::1]"},
                                 {"::ffff:10.77.0.1", "[::ffff:10.77.0.1]"},
                                 {"fe80::77:1%left", "fe80::77:1%right"},
                                 {"head", "head", v4 + v6},
                                 {"head", "head", own + v4},
                                 {"head", "head", v6 + v4}};  // rank 0 prefers IPv6, which the other lacks
  // Side by side, because machines that meet mostly wait.
  const auto meet_at = [&](std::span<const MeetingPoint> some) {
    std::list<Process> machines;
    for (const MeetingPoint& point : some)
      for (const int n : {0, 1}) machines.emplace_back(at_point(n, point, static_cast<int>(&point - points)));
    for (Process& machine : machines) {
      const Outcome outcome = machine.wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
  };
  const std::span<const MeetingPoint> all = points;
  meet_at(all.first(all.size() - 1));
  ASSERT_TRUE(shell(fmt::format(
      "ip -n {0} addr flush dev right scope global && ip -n {0} addr add 10.77.0.2/24 dev right", host(1))));
  meet_at(all.last(1));
}

TEST_F(Hosts, ACutCableEndsTheRunOnBoth) {
  Json longer = shared(config());
  longer.update({{"max_steps", 100000},
                 {"save_strategy", "steps"},
                 {"save_steps", 2},
                 {"save_total_limit", 2},
                 {"ddp_timeout", 3}});
  Process zero(on_host(0, longer)), one(on_host(1, longer));
  ASSERT_TRUE(zero.waits_for("checkpoint-4")) << zero.said();
  cut();
  const auto begin = std::chrono::steady_clock::now();
  const Outcome of_zero = zero.wait(), of_one = one.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(45));
  EXPECT_EQ(of_zero.code, 7) << of_zero.err;
  EXPECT_EQ(of_one.code, 7) << of_one.err;
  EXPECT_THAT(of_zero.err, HasSubstr("ranks 2, 3 did not reach collective"));
  EXPECT_THAT(of_one.err, AnyOf(HasSubstr("where ranks meet, is gone"), HasSubstr("did not reach collective")));
}

// The traffic of an update with 2 ranks according to the ZeRO paper: the bytes of all weights, or twice half of them.
// With sharded weights: once half of those outside blocks, half of the blocks' before each pass except for the two that
// are still in memory, and half of the gradients. In bfloat16, gradients take half the bytes.
TEST_F(Hosts, SendWhatTheoryAsksFor) {
  constexpr int kLayers = 6;
  write_untrained_model(folder_ / "model");
  Json model = read_json(folder_ / "model/config.json");
  model.update({{"hidden_size", 256}, {"intermediate_size", 512}, {"num_hidden_layers", kLayers}});
  write_file(folder_ / "model/config.json", dump_json(model));
  Json config = shared(this->config());
  config.update({{"model_name_or_path", (folder_ / "model").string()},
                 {"random_init", true},
                 {"deterministic_reduce", false},
                 {"logging_steps", 100}});
  double outer = 0, blocks = 0;
  for (const auto& [stage, type] : {std::pair(0, "fp32"), {1, "fp32"}, {2, "fp32"}, {3, "fp32"}, {1, "bf16"}}) {
    config["communication_data_type"] = type;
    std::vector<double> bytes;
    for (const int steps : {2, 10}) {
      config.update({{"max_steps", steps}, {"zero_stage", stage}});
      fs::remove_all(folder_ / "out");
      const double before = sent();
      Process zero(on_host(0, config, 1)), one(on_host(1, config, 1));
      const Outcome of_zero = zero.wait();
      ASSERT_EQ(of_zero.code, 0) << of_zero.err;
      ASSERT_EQ(one.wait().code, 0);
      bytes.push_back(sent() - before);
    }
    outer = blocks = 0;
    for (const auto& [name, values] : tensors_of(folder_ / "out"))
      (name.find(".layers.") == std::string::npos ? outer : blocks) +=
          sizeof(float) * static_cast<double>(values.size());
    const double divided = (outer + blocks) / 2 + (outer + blocks * (2 * kLayers - 2) / kLayers) / 2;
    const double whole = (outer + blocks) * (type == "bf16"s ? 0.75 : 1);
    const double expected = stage == 3 ? divided : whole, found = (bytes[1] - bytes[0]) / 8;
    // The bounds allow for TCP headers, messages of watchdogs, padding of rows, and retransmitted packets on a busy
    // machine.
    EXPECT_GT(found, expected * 0.97) << stage << ", " << type;
    EXPECT_LT(found, expected * 1.08) << stage << ", " << type;
  }
}

}  // namespace
}  // namespace qtrain::e2e
