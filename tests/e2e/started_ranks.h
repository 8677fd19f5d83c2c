#pragma once
// Ranks that another program starts.
#include <fmt/format.h>

#include "core/os/file.h"
#include "dist/socket.h"
#include "tests/e2e/ranks.h"

namespace qtrain::e2e {

/// A test whose ranks are started as torchrun starts them.
template <class Base>
class StartedByTorchrun : public Base {
 protected:
  Launch rank(int number, int size, const Json& config) const { return rank(number, {size, size}, config); }
  struct World {
    int size, of_machine;
  };
  Launch rank(int number, const World& world, const Json& config) const {
    const fs::path file = this->at(fmt::format("rank{}.json", number));
    write_file(file, dump_json(config));
    Launch launch = launch_of({.words = {file.string()}});
    launch.environment = {fmt::format("RANK={}", number),
                          fmt::format("LOCAL_RANK={}", number % world.of_machine),
                          fmt::format("WORLD_SIZE={}", world.size),
                          fmt::format("LOCAL_WORLD_SIZE={}", world.of_machine),
                          "MASTER_ADDR=127.0.0.1",
                          fmt::format("MASTER_PORT={}", port_)};
    return launch;
  }
  std::uint16_t port_ = Listener({.host = "127.0.0.1"}).port();  // was free a moment ago
};

using StartedRanks = StartedByTorchrun<Ranks>;

}  // namespace qtrain::e2e
