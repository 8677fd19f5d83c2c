#pragma once
// Ranks that somebody else starts.
#include <fmt/format.h>

#include "core/file.h"
#include "dist/socket.h"
#include "tests/e2e/ranks.h"

namespace qtrain::e2e {

/// Started by somebody else, as torchrun does it.
template <class Base>
class StartedByTorchrun : public Base {
 protected:
  Launch rank(int number, int size, const Json& config) const {
    const fs::path file = this->at(fmt::format("rank{}.json", number));
    write_file(file, dump_json(config));
    Launch launch = launch_of({.words = {file.string()}});
    launch.environment = {fmt::format("RANK={}", number),
                          fmt::format("LOCAL_RANK={}", number),
                          fmt::format("WORLD_SIZE={}", size),
                          fmt::format("LOCAL_WORLD_SIZE={}", size),
                          "MASTER_ADDR=127.0.0.1",
                          fmt::format("MASTER_PORT={}", port_)};
    return launch;
  }
  std::uint16_t port_ = Listener({.host = "127.0.0.1"}).port();  // that was free a moment ago
};

using StartedRanks = StartedByTorchrun<Ranks>;

}  // namespace qtrain::e2e
