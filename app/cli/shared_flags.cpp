#include "app/cli/shared_flags.h"

namespace qtrain {

using enum FlagKind;

std::vector<Flag> with_sampling(std::vector<Flag> flags) {
  const std::vector<Flag> sampling = {
      {"max_new_tokens", integer, "N", "generate at most N tokens"},
      {"temperature", number, "T", "sampling temperature; 0 always takes the most likely token"},
      {"top_p", number, "P", "sample from the most likely tokens whose probabilities add up to P"},
      {"top_k", integer, "K", "sample from the K most likely tokens; 0 means all"},
      {"min_p", number, "P", "drop tokens with less than P times the probability of the most likely one"},
      {"repetition_penalty", number, "X", "values above 1 make tokens that already occurred less likely"},
      {"seed", integer, "N", "random seed for sampling"},
      {"greedy", present, "", "always take the most likely token"},
      {"stop", repeated, "TEXT", "stop when this text is generated; may be given more than once"},
      {"batch_size", integer, "N", "number of rows to generate together"}};
  flags.insert(flags.end(), sampling.begin(), sampling.end());
  return flags;
}

}  // namespace qtrain
