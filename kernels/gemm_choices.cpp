#include "kernels/gemm_choices.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cctype>

#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "kernels/dispatch.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kRules = 4;  ///< version of the size classes and the selection rules (kernels/gemm_key.h)
constexpr const char *kMadeBy = "made_by", *kChoices = "choices";

std::string file_name(std::string made_by) {
  for (char& c : made_by)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return "gemm_" + made_by + ".json";
}

}  // namespace

GemmChoices::GemmChoices(std::string made_by, const fs::path& folder)
    : made_by_(std::move(made_by) + ", rules " + std::to_string(kRules)) {
  if (folder.empty()) return;
  file_ = folder / file_name(made_by_);
  shared_ = shared_now();
}

GemmChoices::~GemmChoices() {
  share();
}

std::optional<GemmChoices::Table> GemmChoices::table_of(const Json& document) {
  if (!document.is_object() || !document.contains(kChoices) || !document[kChoices].is_object()) return {};
  Table table;
  for (const auto& [gemm, words] : document[kChoices].items()) {
    Algorithm algorithm;
    if (!words.is_array() || words.size() != algorithm.size()) return {};
    for (std::size_t i = 0; i < algorithm.size(); ++i) {
      if (!words[i].is_number_unsigned()) return {};
      algorithm[i] = words[i].get<std::uint64_t>();
    }
    table.emplace(gemm, algorithm);
  }
  return table;
}

Json GemmChoices::document(const Table& table) const {
  Json choices = Json::object();
  for (const auto& [gemm, algorithm] : table) choices[gemm] = algorithm;
  return {{kMadeBy, made_by_}, {kChoices, choices}};
}

GemmChoices::Table GemmChoices::shared_now() const {
  std::error_code absent;
  if (!fs::is_regular_file(file_, absent)) return {};
  try {
    return table_of(read_json(file_)).value_or(Table{});
  } catch (const Error&) {  // truncated when a disk was full: it is written again
    return {};
  }
}

std::optional<GemmChoices::Algorithm> GemmChoices::find(const std::string& gemm) {
  asked_ = true;
  for (const Table* table : {&used_, &shared_})
    if (const auto at = table->find(gemm); at != table->end()) {
      used_.insert(*at);
      return at->second;
    }
  return {};
}

void GemmChoices::remember(const std::string& gemm, const Algorithm& algorithm) {
  used_[gemm] = algorithm;
  new_[gemm] = algorithm;
}

void GemmChoices::share() {
  if (file_.empty() || new_.empty()) return;
  try {
    fs::create_directories(file_.parent_path());
    const Descriptor lock(::open((file_.string() + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
    if (::flock(lock.get(), LOCK_EX) != 0) return;
    Table all = shared_now();
    all.merge(Table(new_));
    write_file(file_, dump_json(document(all), 1) + "\n");
  } catch (const Error&) {  // read-only or full disk: other runs choose for themselves
  } catch (const fs::filesystem_error&) {
  }
  new_.clear();
}

Json GemmChoices::used() const {
  return document(used_);
}

bool GemmChoices::restore(const Json& used, const std::string& place) {
  check(!asked_, "choices of GEMMs are restored before the first GEMM");
  std::optional<Table> table = table_of(used);
  if (!table || !used.contains(kMadeBy) || !used[kMadeBy].is_string())
    fail(ErrorKind::input, {.cause = "does not hold GEMM algorithms", .place = place});
  if (used[kMadeBy] != made_by_) return false;
  used_ = std::move(*table);
  return true;
}

GemmChoices* gemm_choices(Ctx& ctx) {
  if constexpr (ops::kHasCuda)
    if (ctx.device().kind == DeviceKind::cuda) return &cuda::gemm_choices(ctx);
  return nullptr;
}

}  // namespace qtrain
