#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/context.h"
#include "core/formats/json.h"

namespace qtrain {

/// GEMM algorithms that were chosen by timing, by GEMM name (kernels/gemm_key.h). The choice determines the last bits
/// of results, so it is persisted: in a file that runs share, and in checkpoints, whose choices take precedence.
class GemmChoices {
 public:
  /// An algorithm as its library encodes it.
  using Algorithm = std::array<std::uint64_t, 8>;

  /// `made_by`: the GPU and the library version; choices are valid for these and one version of the selection rules
  /// only. `folder`: that of the shared file; empty: none. A file that cannot be read or written is ignored.
  GemmChoices(std::string made_by, const std::filesystem::path& folder);
  /// Shares new choices.
  ~GemmChoices();
  GemmChoices(const GemmChoices&) = delete;
  GemmChoices& operator=(const GemmChoices&) = delete;

  std::optional<Algorithm> find(const std::string& gemm);
  /// Stores a choice for this run and for others.
  void remember(const std::string& gemm, const Algorithm& algorithm);
  /// Adds this run's choices to the shared file. Choices that others wrote in the meantime win: they have already
  /// computed with them.
  void share();

  /// The choices that this run's GEMMs use.
  Json used() const;
  /// Restores the choices that an earlier run used; call it before the first GEMM. Returns false, changing nothing, if
  /// they were made by another GPU, library or version of the rules. Throws ErrorKind::input, with `place`, for
  /// anything else.
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

/// The choices of a context; null on a CPU, which has one algorithm.
GemmChoices* gemm_choices(Ctx& ctx);

namespace cuda {
GemmChoices& gemm_choices(Ctx& ctx);
}

}  // namespace qtrain
