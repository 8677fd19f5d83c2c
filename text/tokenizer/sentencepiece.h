#pragma once
#include <memory>

#include "text/tokenizer/load.h"

namespace qtrain {

/// The tokenizer of a folder with tokenizer.model.
std::unique_ptr<Tokenizer> load_sentencepiece(const TokenizerSettings& settings);

}  // namespace qtrain
