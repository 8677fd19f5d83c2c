#pragma once
#include <gloo/context.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/os/descriptor.h"

namespace qtrain {

/// gloo over connections that qtrain has authenticated, because gloo's own ports would accept anyone as a rank.
class GlooContext : public gloo::Context {
 public:
  struct Options {
    int rank = 0;
    std::string address;                  ///< of this machine
    std::vector<Descriptor> peers;        ///< one for each rank; this rank's own is empty
    std::chrono::milliseconds timeout{};  ///< of each collective
  };
  explicit GlooContext(Options options);
  ~GlooContext() override;
  /// Aborts running calls with an error, here and on the other ranks. Thread-safe. gloo itself can only close its
  /// connections, which does not wake calls that wait here.
  void cut();

 private:
  class Pair;
  class Pairs;
};

}  // namespace qtrain
