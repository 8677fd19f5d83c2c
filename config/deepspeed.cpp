#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "config/keys.h"
#include "config/launchers.h"
#include "optim/table.h"

namespace qtrain {
namespace {

/// What a row has for a name, whatever its letters' case.
std::string_view ours_of(const KeyRow& row, const Json& theirs) {
  if (!theirs.is_string()) return {};
  std::string lower = theirs.get<std::string>();
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const Json* ours = row.meaning(lower);
  return ours ? std::string_view(ours->get_ref<const std::string&>()) : std::string_view();
}

constexpr std::string_view kZero = "zero_optimization.";

}  // namespace

void LauncherReader::deepspeed(const LauncherPart& part) {
  const std::vector<Leaf> leaves = leaves_of(part);
  for (const Leaf& leaf : leaves) deepspeed_leaf(leaf);
  for (const Leaf& leaf : leaves)  // which needs the others
    if (leaf.is("train_batch_size")) deepspeed_batch(leaf);
  deepspeed_warmup(leaves);
  tell_ignored(part, "DeepSpeed");
}

// Members of zero_optimization are about several devices, but for those that have a row.
void LauncherReader::deepspeed_leaf(const Leaf& leaf) {
  const DialectTable& table = dialect_table("deepspeed");
  if (leaf.is("zero_optimization.offload_param.device") && !says_nothing(leaf.value))
    draft_.judge.note(
        leaf.place,
        fmt::format("\"{}\" has no effect: weights stay on the device, load_in_4bit makes them smaller", leaf.written));
  if (!leaf.key.starts_with(kZero) || table.find(leaf.key)) return apply(table, leaf);
  const std::string member = leaf.key.substr(kZero.size());
  const std::vector<std::string_view> known = table.list("zero_optimization");
  if (std::ranges::find(known, std::string_view(member).substr(0, member.find('.'))) != known.end())
    return ignore(leaf);
  unknown({member, leaf.written, leaf.place, leaf.value}, known);
}

// Names of one optimizer that differ in how it is computed do not contradict each other.
void LauncherReader::optimizer(const KeyRow& row, const Leaf& leaf) {
  const auto ours = ours_of(row, leaf.value);
  if (ours.empty()) return refuse(leaf, "there is no such optimizer", "remove the block and set optim");
  const Setting* given = draft_.find("optim");
  const auto* same = given && given->value.is_string() ? find_optimizer(given->value.get<std::string>()) : nullptr;
  if (!same || same->rule != find_optimizer(ours)->rule) set(leaf, "optim", ours);
}

void LauncherReader::betas(const KeyRow&, const Leaf& leaf) {
  if (leaf.value == "auto") return;
  if (!leaf.value.is_array() || leaf.value.size() != 2) return refuse(leaf, "betas are two numbers", "use \"auto\"");
  set(leaf, "adam_beta1", leaf.value[0]);
  set(leaf, "adam_beta2", leaf.value[1]);
}

void LauncherReader::adam_variant(const KeyRow&, const Leaf& leaf) {
  leaf.value == false ? refuse(leaf, "AdamW corrects its moments and decouples the weight decay") : ignore(leaf);
}

void LauncherReader::offload(const KeyRow&, const Leaf& leaf) {
  if (says_nothing(leaf.value)) return;
  if (leaf.value != "cpu" && leaf.value != "nvme" && leaf.value != true)
    return refuse(leaf, "the optimizer's state is on the device or in the memory of the host", "use cpu or none");
  set(leaf, "optimizer_offload", true);
  if (leaf.value == "nvme")
    draft_.judge.note(leaf.place, "the optimizer's state goes to the host's memory, not to disk");
}

// DeepSpeed has train_batch_size = micro-batch x accumulation x devices, and fills in the one that is missing.
void LauncherReader::deepspeed_batch(const Leaf& leaf) {
  if (leaf.value == "auto") return;
  const auto number = [&](const char* key) {
    const Setting* s = draft_.find(key);
    return s && s->value.is_number() ? std::max(0.0, s->value.get<double>()) : 0;
  };
  if (!leaf.value.is_number()) return refuse(leaf, "a batch is a number of rows", "use \"auto\"");
  const double total = leaf.value.get<double>(), micro = number("per_device_train_batch_size"),
               windows = number("gradient_accumulation_steps"), ranks = std::max(1.0, number("nproc"));
  const double known = std::max(1.0, micro) * std::max(1.0, windows) * ranks;
  const bool divides = total > 0 && std::fmod(total, known) == 0 && (micro > 0 || windows > 0);
  if (divides && windows == 0)
    return draft_.offer("gradient_accumulation_steps", {leaf.written, leaf.place, total / known});
  if (divides && micro == 0)
    return draft_.offer("per_device_train_batch_size", {leaf.written, leaf.place, total / known});
  if (total == known && micro > 0) return;
  draft_.judge.problem(
      leaf.place,
      fmt::format("\"{}\" is {}, but per_device_train_batch_size x gradient_accumulation_steps x nproc is {}",
                  leaf.written, show(leaf.value), micro > 0 && windows > 0 ? fmt::format("{}", known) : "not given"),
      "use \"auto\", or numbers whose product it is");
}

void LauncherReader::schedule(const KeyRow& row, const Leaf& leaf) {
  const auto ours = ours_of(row, leaf.value);
  if (ours.empty()) return refuse(leaf, "there is no such schedule", "remove the block and set lr_scheduler_type");
  set(leaf, "lr_scheduler_type", ours);
}

void LauncherReader::warmup_steps(const KeyRow&, const Leaf& leaf) {
  if (leaf.value == "auto") return;
  const Setting* ratio = draft_.find("warmup_ratio");
  if (!ratio || says_nothing(ratio->value)) return set(leaf, "warmup_steps", leaf.value);
  draft_.judge.problem(leaf.place,
                       fmt::format("\"{}\" is {}, but \"{}\" is {} ({})", leaf.written, show(leaf.value),
                                   ratio->written, show(ratio->value), ratio->place),
                       "use \"auto\", or remove the latter");
}

void LauncherReader::total_steps(const KeyRow&, const Leaf& leaf) {
  if (leaf.value == "auto") return;
  if (draft_.has("max_steps")) return set(leaf, "max_steps", leaf.value);
  refuse(leaf, "how many steps there are depends on the rows", "use \"auto\", or set max_steps");
}

void LauncherReader::warmup_start(const KeyRow&, const Leaf& leaf) {
  constexpr double kAlmostZero = 1e-7;
  const bool zero = leaf.value.is_number() && leaf.value.get<double>() <= kAlmostZero;
  if (leaf.value != "auto" && !zero) refuse(leaf, "warm-up begins at 0", "use 0");
}

void LauncherReader::schedule_floor(const KeyRow&, const Leaf& leaf) {
  if (!leaf.value.is_number() || leaf.value <= 0) return;
  draft_.settings.erase("lr_scheduler_type");
  draft_.offer("lr_scheduler_type", {leaf.written, leaf.place, "cosine_with_min_lr"});
  set(leaf, "lr_scheduler_kwargs", {{"min_lr_rate", leaf.value}});
}

void LauncherReader::deepspeed_warmup(const std::vector<Leaf>& leaves) {
  const Leaf* type = nullptr;
  for (const Leaf& leaf : leaves) {
    if (leaf.is("scheduler.type")) type = &leaf;
    if (leaf.is("scheduler.params.warmup_type") && leaf.value == "linear") return;
  }
  if (type)
    draft_.judge.note(
        type->place,
        fmt::format("\"{}\": warm-up is linear here; that of DeepSpeed is logarithmic unless warmup_type is linear",
                    type->written));
}

}  // namespace qtrain
