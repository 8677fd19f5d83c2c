#pragma once
#include <optional>

#include "app/cli/arguments.h"
#include "train/setup/model_setup.h"

namespace qtrain {

/// What --load_in_4bit, --load_in_8bit and --load_in_fp8 ask for. Throws a usage error if more than one is given.
inline std::optional<Quantization> quantization_of(const Arguments& args) {
  const QuantSection section{.load_in_4bit = args.has("load_in_4bit"),
                             .load_in_8bit = args.has("load_in_8bit"),
                             .load_in_fp8 = args.has("load_in_fp8")};
  if (section.load_in_4bit + section.load_in_8bit + section.load_in_fp8 > 1)
    fail(ErrorKind::usage, {.cause = "--load_in_4bit, --load_in_8bit and --load_in_fp8 exclude each other",
                            .remedy = "keep one of them"});
  return quantization_asked(section);
}

}  // namespace qtrain
