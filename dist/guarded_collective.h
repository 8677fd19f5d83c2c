#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective.h"
#include "dist/lost_rank.h"

namespace qtrain {

/// A collective that detects when ranks make different calls, since sums of different things would go unnoticed. Each
/// call has a label, a hash of its kind, type and size and of all calls before it, and exchanges data only with calls
/// of the same label: ranks that make different calls wait for each other, which the watchdog notices. Calls that are
/// queued on a GPU have no label, but are included in that of the next call between hosts, so their results are
/// verified before they are used further. If a call fails, it finds out which ranks are missing.
class GuardedCollective : public Collective {
 public:
  GuardedCollective(std::unique_ptr<Collective> inner, const RankWatch& watch)
      : inner_(std::move(inner)), watch_(watch) {}
  /// Connects `size` ranks with `connect`, which may throw anything; the error names a rank that is lost meanwhile.
  using Connect = std::function<std::unique_ptr<Collective>()>;
  static std::unique_ptr<Collective> connected(const RankWatch& watch, int size, const Connect& connect);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(Ctx& ctx, Tensor values, Reduction reduction) override;
  void broadcast(Ctx& ctx, Tensor values, int root) override;
  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override;
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override;
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override;
  void barrier(Ctx& ctx) override;
  void disconnect() override { inner_->disconnect(); }
  void give_up() override { inner_->give_up(); }
  void label(const std::string& text) override { label_ = text; }
  std::unique_ptr<Collective> part(int first, int size) override;
  std::unique_ptr<Collective> counterparts(int size) override;

 private:
  struct Call;
  RankWatch watch_of(int first, int stride);
  void guard(const Call& call, const std::function<void()>& act);
  static std::uint64_t after(std::uint64_t sequence, const Call& call);

  std::unique_ptr<Collective> inner_;
  RankWatch watch_;
  std::string label_;
  std::int64_t calls_ = 0, parts_ = 0;
  std::uint64_t sequence_ = 0;         ///< a hash of all calls
  std::vector<std::uint64_t> before_;  ///< its values after the last calls, most recent first
};

}  // namespace qtrain
