// Strangers connect to the ports of ranks: the ranks still meet, train, and get the bits of an undisturbed run.
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <sstream>

#include "tests/e2e/started_ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Open = std::list<Socket>;

void connect_to(std::uint16_t port, const std::string& text, Open& open) {
  ConnectFailure failure;
  auto socket = Socket::connect({.host = "127.0.0.1", .port = port}, std::chrono::seconds(5), failure);
  if (!socket) return;
  socket->send(std::as_bytes(std::span(text.data(), text.size())));
  open.push_back(std::move(*socket));
}

/// The IPv4 ports at which a process listens, found by its sockets' inodes.
std::set<std::uint16_t> ports_of(pid_t pid) {
  std::map<std::string, std::uint16_t> listening;
  std::ifstream table(fmt::format("/proc/{}/net/tcp", pid));
  std::string line;
  for (std::getline(table, line); std::getline(table, line);) {
    std::istringstream row(line);
    std::array<std::string, 10> columns;
    for (std::string& column : columns) row >> column;
    constexpr const char* kListening = "0A";
    if (columns[3] == kListening)
      listening["socket:[" + columns[9] + "]"] =
          static_cast<std::uint16_t>(std::stoi(columns[1].substr(columns[1].find(':') + 1), nullptr, 16));
  }
  std::set<std::uint16_t> ports;
  std::error_code error;
  for (fs::directory_iterator it(fmt::format("/proc/{}/fd", pid), error), end; !error && it != end; it.increment(error))
    if (const auto found = listening.find(fs::read_symlink(it->path(), error).string()); found != listening.end())
      ports.insert(found->second);
  return ports;
}

std::string limits_of(pid_t pid) {
  std::ifstream limits(fmt::format("/proc/{}/limits", pid));
  return {std::istreambuf_iterator<char>(limits), {}};
}

/// A request to the store: set a key (1), or wait for one (2).
std::string request(std::uint32_t verb, const std::string& key, const std::string& value) {
  const std::array<std::uint32_t, 4> head{verb, 0, static_cast<std::uint32_t>(key.size()),
                                          static_cast<std::uint32_t>(value.size())};
  return std::string(reinterpret_cast<const char*>(head.data()), sizeof head) + key + value;
}

/// What strangers do while rank 0 waits for rank 1.
struct Strangers {
  std::string name;
  std::function<void(std::uint16_t port, pid_t zero, Open& open)> act;
};
void PrintTo(const Strangers& strangers, std::ostream* out) {
  *out << strangers.name;
}

std::vector<Strangers> all_strangers() {
  const auto many = [](int count, const std::string& text) {
    return [=](std::uint16_t port, pid_t, Open& open) {
      for (int i = 0; i < count; ++i) connect_to(port, text, open);
    };
  };
  const std::string announced("\1\0\0\0\0\0\0\0\0\0\x40\0\0\0\x40\0", 16);
  return {{"garbage", many(20, std::string(500, '\xff'))},
          {"announced_megabytes", many(150, announced)},
          {"a_verdict", many(1, request(1, "verdict", "\x1b[31mowned\x1b[0m"))},
          {"another_attempt", many(1, request(1, "attempt", "none"))},
          {"a_lost_rank", many(1, request(1, "missing", ""))},
          {"the_address_of_a_rank", many(1, request(1, "gloo/1", std::string(136, '\1')))},
          {"connect_and_hold", many(500, "")},
          {"every_port", [](std::uint16_t, pid_t zero, Open& open) {
             for (int i = 0; i < 3; ++i)
               for (const std::uint16_t port : ports_of(zero)) connect_to(port, std::string(200, '\xff'), open);
           }}};
}

// Waits until rank 0 listens at the port.
bool is_there(Process& zero, std::uint16_t port) {
  while (zero.running() && !ports_of(zero.pid()).contains(port))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // by then it waits for the others
  return zero.running();
}

Launch at_address(const std::string& address, Launch launch) {
  constexpr const char* kVariable = "MASTER_ADDR=";
  for (std::string& entry : launch.environment)
    if (entry.starts_with(kVariable)) entry = kVariable + address;
  return launch;
}

class StrangersAt : public StartedByTorchrun<Ranks>, public ::testing::WithParamInterface<Strangers> {
 protected:
  Json config() const {
    Json config = divided(base(), 2);
    config.erase("nproc");
    config.update({{"max_steps", 2}, {"ddp_timeout", 20}});
    return config;
  }
  std::string result() const { return bytes_of(at("out/adapter_model.safetensors")); }
};

TEST_P(StrangersAt, ThePortsOfRanksChangeNothing) {
  Json alone = divided(base(), 1);
  alone.update({{"max_steps", 2}, {"output_dir", at("alone").string()}});
  train_ok(folder_.path(), alone);
  Process zero(rank(0, 2, config()));
  ASSERT_TRUE(is_there(zero, port_)) << zero.said();
  Open open;
  GetParam().act(port_, zero.pid(), open);
  Process one(rank(1, 2, config()));
  const Outcome of_zero = zero.wait(), of_one = one.wait();
  EXPECT_EQ(of_zero.code, 0) << of_zero.err;
  EXPECT_EQ(of_one.code, 0) << of_one.err;
  EXPECT_THAT(of_zero.err + of_one.err, AllOf(Not(HasSubstr("owned")), Not(HasSubstr("\x1b"))));
  EXPECT_LT(of_zero.peak_kib, 600 * 1024);
  EXPECT_EQ(result(), bytes_of(at("alone/adapter_model.safetensors")));
}
INSTANTIATE_TEST_SUITE_P(All, StrangersAt, ::testing::ValuesIn(all_strangers()),
                         [](const auto& info) { return info.param.name; });

TEST_F(StartedRanks, MeetAtOneAddressAlone) {
  Json config = divided(base(), 2);
  config["ddp_timeout"] = 30;
  Process zero(rank(0, 2, config));
  ASSERT_TRUE(is_there(zero, port_)) << zero.said();
  ConnectFailure failure;
  EXPECT_FALSE(Socket::connect({.host = "127.0.0.2", .port = port_}, std::chrono::seconds(5), failure));
  EXPECT_TRUE(Socket::connect({.host = "127.0.0.1", .port = port_}, std::chrono::seconds(5), failure)) << failure.why;
  zero.signal(SIGTERM);
  EXPECT_EQ(zero.wait().code, 75);
}

TEST_F(StartedRanks, MeetOverIpv6) {
  Json config = divided(base(), 2);
  config["max_steps"] = 1;
  std::list<Process> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back(at_address("::1", rank(r, 2, config)));
  }
  for (Process& p : ranks) {
    const Outcome outcome = p.wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

TEST_F(StartedRanks, NeedTheSameSecret) {
  Json config = divided(base(), 2);
  config.update({{"max_steps", 1}, {"ddp_timeout", 20}});
  const auto ends = [&](const char* of_zero, const char* of_one) {
    std::list<Process> ranks;
    for (int r = 0; r < 2; ++r) {
      Launch launch = rank(r, 2, config);
      launch.environment.push_back(fmt::format("QTRAIN_RANK_SECRET={}", r == 0 ? of_zero : of_one));
      ranks.emplace_back(launch);
    }
    std::array<Outcome, 2> outcomes;
    for (int r = 1; r >= 0; --r) {
      outcomes[static_cast<std::size_t>(r)] = std::next(ranks.begin(), r)->wait();
      if (outcomes[1].code != 0) ranks.front().signal(SIGTERM);  // as torchrun does
    }
    return outcomes;
  };
  for (const Outcome& outcome : ends("the secret of this run", "the secret of this run"))
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto other = ends("the secret of this run", "the secret of that run");
  EXPECT_EQ(other[1].code, 2) << other[1].err;
  EXPECT_THAT(other[1].err, AllOf(HasSubstr("do not have the same secret"), HasSubstr("QTRAIN_RANK_SECRET"),
                                  Not(HasSubstr("the secret of that run"))));
  EXPECT_THAT(other[0].err, HasSubstr("it does not know the secret of this run"));
}

// The ranks report it immediately, with the key and both values.
TEST_F(StartedRanks, NameAKeyThatDiffers) {
  const std::vector<std::pair<std::string, Json>> keys{{"zero_stage", 2},
                                                       {"overlap_comm", false},
                                                       {"ddp_bucket_cap_mb", 7},
                                                       {"gradient_accumulation_steps", 1},
                                                       {"context_parallel_heads", 1}};
  for (const auto& [key, value] : keys) {
    Json config = divided(base(), 2), other = config;
    config["zero_stage"] = other["zero_stage"] = 0;
    other[key] = value;
    const auto begin = std::chrono::steady_clock::now();
    Process zero(rank(0, 2, config)), one(rank(1, 2, other));
    for (Process* p : {&zero, &one}) {
      const Outcome outcome = p->wait();
      EXPECT_EQ(outcome.code, 2) << outcome.err;
      EXPECT_THAT(outcome.err,
                  HasSubstr(fmt::format("rank 1 differs from rank 0 in {} ({}, rank 0 has ", key, dump_json(value))));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << key;
  }
}

TEST_F(StartedRanks, TellOfANameWithoutAnAddressAtOnce) {
  Json config = divided(base(), 2);
  Process one(at_address("no.such.host.invalid", rank(1, {2, 1}, config)));
  EXPECT_TRUE(one.waits_for("warning: the name no.such.host.invalid has no address (", std::chrono::seconds(20)));
  EXPECT_THAT(one.said(), HasSubstr("retrying for 1"));  // 120 s, not ddp_timeout
  one.signal(SIGTERM);
  EXPECT_EQ(one.wait().code, 75);
}

/// Runs with a limit on open files.
class FewFilesOf : public Ranks {
 protected:
  Launch limited(const char* limit, const Json& config) const {
    Launch launch = launch_of({.words = words(config)});
    launch.argv.insert(launch.argv.begin(), {"/usr/bin/prlimit", std::string("--nofile=") + limit});
    return launch;
  }
};

TEST_F(FewFilesOf, RanksAreRaised) {
  Json config = divided(base(), 2);
  config["max_steps"] = 100000;
  Process process(limited("100:3000", config));
  ASSERT_TRUE(process.waits_for("step 2/")) << process.said();
  for (const pid_t pid : children_of(process.pid()))
    EXPECT_THAT(limits_of(pid), ::testing::ContainsRegex("Max open files +3000 +3000"));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().code, 75);
}

TEST_F(FewFilesOf, RanksAreTold) {
  const Outcome outcome = Process(limited("16:16", divided(base(), 6))).wait();
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
}

}  // namespace
}  // namespace qtrain::e2e
