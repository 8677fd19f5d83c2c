#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "dist/collective.h"
#include "dist/lost_rank.h"

namespace qtrain {

/// A collective that trusts nobody: before each call the ranks compare its number, kind, type and size, since sums of
/// different things would go unnoticed; and where a call fails, it finds out which ranks are missing.
class GuardedCollective : public Collective {
 public:
  GuardedCollective(std::unique_ptr<Collective> inner, const RankWatch& watch)
      : inner_(std::move(inner)), watch_(watch) {}

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
  void guard(Ctx& ctx, const Call& call, const std::function<void()>& act);
  void compare(Ctx& ctx, const Call& call);

  std::unique_ptr<Collective> inner_;
  RankWatch watch_;
  std::string label_;
  std::int64_t calls_ = 0;
};

}  // namespace qtrain
