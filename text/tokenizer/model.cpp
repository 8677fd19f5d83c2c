#include "text/tokenizer/model.h"

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"

namespace qtrain {

void refuse_model(const std::string& cause) {
  fail(ErrorKind::input, {.cause = cause, .place = "model"});
}

std::unique_ptr<TokenModel> make_token_model(const JsonView& json, Alphabet alphabet) {
  // Old files have no type.
  const std::string type = json.text("type", json.find("merges") ? "BPE" : "Unigram");
  if (type == "BPE") return std::make_unique<Bpe>(json, alphabet);
  if (type == "Unigram") return std::make_unique<Unigram>(json, alphabet);
  fail(ErrorKind::input,
       {.cause = "tokenizer model \"" + type + "\" is not supported", .remedy = "supported: BPE, Unigram"});
}

}  // namespace qtrain
