#pragma once
// Two machines, simulated as network namespaces that are connected by a cable which can be cut.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "core/os/file.h"
#include "tests/e2e/ranks.h"

namespace qtrain::e2e {

inline bool shell(const std::string& command) {
  return std::system(("( " + command + " ) >/dev/null 2>&1").c_str()) == 0;  // NOLINT(cert-env33-c): words of this test
}

/// Base: Ranks, or a class derived from it.
template <class Base>
class OnTwoHosts : public Base {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    if (!shell(fmt::format(
            "ip netns add {0} && ip netns add {1} && ip link add name left netns {0} type veth peer name right netns "
            "{1} && ip -n {0} addr add 10.77.0.1/24 dev left && ip -n {1} addr add 10.77.0.2/24 dev right && "
            "ip -n {0} link set left up && ip -n {1} link set right up && ip -n {0} link set lo up && "
            "ip -n {1} link set lo up",
            host(0), host(1))))
      GTEST_SKIP() << "network namespaces cannot be made here";
  }
  void TearDown() override {
    for (const int n : {0, 1}) shell("ip netns del " + host(n));
  }
  static std::string host(int n) { return fmt::format("qtrain-{}-{}", ::getpid(), n); }

  /// The cable.
  void cut() const { ASSERT_TRUE(shell(fmt::format("ip -n {} link set left down", host(0)))); }
  void mend() const { ASSERT_TRUE(shell(fmt::format("ip -n {} link set left up", host(0)))); }

  Launch on_host(int n, Json config, int ranks = 2) const {
    config.update({{"device", "cpu"}, {"nproc", ranks}, {"nnodes", 2}, {"node_rank", n}});
    if (!config.contains("master_addr")) config["master_addr"] = "10.77.0.1";
    const fs::path file = this->folder_ / fmt::format("host{}-{}.json", n, config.value("master_port", 0));
    write_file(file, dump_json(config));
    Launch launch = launch_of({.words = {file.string()}});
    launch.argv.insert(launch.argv.begin(), {"/sbin/ip", "netns", "exec", host(n)});
    return launch;
  }
};

}  // namespace qtrain::e2e
