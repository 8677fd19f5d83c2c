#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/context.h"
#include "core/json.h"

namespace qtrain {

/// Algorithms of GEMMs that were found by timing, by the names of the GEMMs (kernels/gemm_key.h). What
/// is chosen decides the last bits of results, so it is kept: in a file that runs share, and in checkpoints, whose own
/// choices come first.
class GemmChoices {
 public:
  /// An algorithm in the words of its library.
  using Algorithm = std::array<std::uint64_t, 8>;

  /// `made_by`: the GPU and the version of the library, outside which choices mean nothing; so they do under other
  /// rules of naming and choosing. `folder`: of the shared file; empty: none. A file that cannot be read or written is
  /// done without.
  GemmChoices(std::string made_by, const std::filesystem::path& folder);
  /// Shares what is new.
  ~GemmChoices();
  GemmChoices(const GemmChoices&) = delete;
  GemmChoices& operator=(const GemmChoices&) = delete;

  std::optional<Algorithm> find(const std::string& gemm);
  /// For this run and for others.
  void remember(const std::string& gemm, const Algorithm& algorithm);
  /// Writes what this run has chosen beside what others wrote since, whose choices stay: they have computed with them.
  void share();

  /// What the GEMMs of this run are computed with.
  Json used() const;
  /// Goes on with the choices that a run has used, before the first GEMM. False: they are another GPU's or library's
  /// or follow other rules, and were left alone. ErrorKind::input for anything else, with `place`.
  bool restore(const Json& used, const std::string& place);
  const std::string& made_by() const { return made_by_; }

 private:
  using Table = std::map<std::string, Algorithm>;
  static std::optional<Table> table_of(const Json& document);
  Json document(const Table& table) const;
  Table shared_now() const;

  std::string made_by_;
  std::filesystem::path file_;
  Table shared_, used_, new_;
  bool asked_ = false;
};

/// Those of the GEMMs of a context; none on a processor, which has one algorithm.
GemmChoices* gemm_choices(Ctx& ctx);

namespace cuda {
GemmChoices& gemm_choices(Ctx& ctx);
}

}  // namespace qtrain
