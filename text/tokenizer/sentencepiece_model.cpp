#include "text/tokenizer/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "core/os/file.h"

namespace qtrain {
namespace {

using Model = SentencePieceModel;

/// One field of a protocol buffer message: a number, or bytes.
struct Field {
  std::uint64_t number = 0;  ///< field number
  std::uint64_t value = 0;
  std::string_view bytes;
};

/// Reads the fields of a message one by one; throws ErrorKind::input for anything else.
class Fields {
 public:
  Fields(std::string_view message, const std::filesystem::path& file) : rest_(message), file_(file) {}

  [[noreturn]] void refuse() const {
    fail(ErrorKind::input, {.cause = "is not a sentencepiece model",
                            .place = file_.string(),
                            .remedy = "the file is damaged or of another kind: download it again"});
  }
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const auto key = varint();
    field = {.number = key >> 3};
    switch (key & 7) {
      case 0: field.value = varint(); return true;
      case 1: field.bytes = take(8); return true;
      case 2: field.bytes = take(varint()); return true;
      case 5: field.bytes = take(4); return true;
      default: refuse();
    }
  }

 private:
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) refuse();
    const auto bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }

  std::string_view rest_;
  const std::filesystem::path& file_;
};

Model::Entry read_piece(Fields fields) {
  Model::Entry piece;
  for (Field f; fields.next(f);) {
    if (f.number == 1) piece.text = f.bytes;
    if (f.number == 2 && f.bytes.size() == 4) std::memcpy(&piece.score, f.bytes.data(), 4);
    if (f.number == 3) piece.kind = static_cast<Model::Kind>(f.value);
  }
  if (!std::isfinite(piece.score)) fields.refuse();
  return piece;
}

void read_trainer(Fields fields, Model& model) {
  for (Field f; fields.next(f);)
    if (f.number == 3) model.algorithm = static_cast<Model::Algorithm>(f.value);
}

void read_normalizer(Fields fields, Model& model) {
  for (Field f; fields.next(f);) {
    if (f.number == 2) model.normalizes = !f.bytes.empty();
    if (f.number == 3) model.add_dummy_prefix = f.value != 0;
    if (f.number == 4) model.remove_extra_whitespaces = f.value != 0;
  }
}

}  // namespace

SentencePieceModel read_sentencepiece_model(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  Model model;
  Fields fields(mapped.text(), file);
  for (Field f; fields.next(f);) {
    if (f.number == 1) model.pieces.push_back(read_piece({f.bytes, file}));
    if (f.number == 2) read_trainer({f.bytes, file}, model);
    if (f.number == 3) read_normalizer({f.bytes, file}, model);
  }
  if (model.pieces.empty()) fail(ErrorKind::input, {.cause = "has no pieces", .place = file.string()});
  return model;
}

}  // namespace qtrain
