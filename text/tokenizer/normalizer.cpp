#include "text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "core/keyed_hash.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/unicode_form.h"
#include "text/tokenizer/unicode_tables.h"

namespace qtrain {
namespace {

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(TrackedText& text) const override {
    if (text.text.empty()) return;
    TrackedBuilder out(text);
    out.replace(0, 0, prefix_);
    out.keep(0, text.text.size());
    TrackedText result = out.take();
    text = std::move(result);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const JsonView& json)
      : finder_(find_pattern(json.at("pattern"))), content_(json.at("content").text()) {}
  void apply(TrackedText& text) const override {
    std::optional<TrackedBuilder> out;
    std::size_t last = 0;
    finder_(text.text, [&](std::size_t begin, std::size_t end) {
      if (!out) out.emplace(text);
      out->keep(last, begin);
      // Like the library, the offsets start at the last replaced character.
      std::size_t from = std::max(begin + 1, end) - 1;
      while (from > begin && (static_cast<unsigned char>(text.text[from]) & 0xC0) == 0x80) --from;
      out->replace(from, end, content_);
      last = end;
    });
    if (!out) return;
    out->keep(last, text.text.size());
    TrackedText result = out->take();
    text = std::move(result);
  }

 private:
  Finder finder_;
  std::string content_;
};

/// Maps each character to nothing (removing it), to another one, or to itself.
class MapCharacters final : public Normalizer {
 public:
  using Map = std::optional<char32_t> (*)(char32_t);
  explicit MapCharacters(Map map) : map_(map) {}
  void apply(TrackedText& text) const override {
    TrackedBuilder out(text);
    for (std::size_t i = 0; i < text.text.size();) {
      const Utf8Char c = utf8_at(text.text, i);
      const auto mapped = map_(c.value);
      std::string other;
      if (mapped && *mapped != c.value) append_utf8(other, *mapped);
      if (!other.empty())
        out.replace(i, i + c.size, other);
      else if (mapped)
        out.keep(i, i + c.size);
      i += c.size;
    }
    TrackedText result = out.take();
    text = std::move(result);
  }

 private:
  Map map_;
};

std::optional<char32_t> without_accents(char32_t c) {
  return is_accent(c) ? std::nullopt : std::optional(c);
}

// Removes control characters; replaces blanks of any kind by a space.
std::optional<char32_t> nmt(char32_t c) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return {};
  const bool blank = (c >= 9 && c <= 0xD) || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                     c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  return blank ? U' ' : c;
}

/// Replaces each byte by a printable character, like the pre-tokenizer of that name.
class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(TrackedText& text) const override {
    TrackedBuilder out(text);
    for (std::size_t i = 0; i < text.text.size(); ++i) {
      std::string shown;
      append_utf8(shown, printable_of_byte(static_cast<unsigned char>(text.text[i])));
      out.replace(i, i + 1, shown);
    }
    TrackedText result = out.take();
    text = std::move(result);
  }
};

class Lowercase final : public Normalizer {
 public:
  Lowercase() : newer_(lowercase_since_unicode_14().begin(), lowercase_since_unicode_14().end()) {}
  void apply(TrackedText& text) const override {
    TrackedBuilder out(text);
    for (std::size_t i = 0; i < text.text.size();) {
      const Utf8Char c = utf8_at(text.text, i);
      const std::string lower = lowered(c.value);
      if (lower == std::string_view(text.text).substr(i, c.size))
        out.keep(i, i + c.size);
      else
        out.replace(i, i + c.size, lower);
      i += c.size;
    }
    TrackedText result = out.take();
    text = std::move(result);
  }

 private:
  std::string lowered(char32_t c) const {
    if (c == 0x130) return "i\u0307";
    const auto it = c < 0x80 ? newer_.end() : newer_.find(c);
    std::string lower;
    append_utf8(lower, it != newer_.end() ? static_cast<char32_t>(static_cast<std::int32_t>(c) + it->second)
                                          : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    return lower;
  }
  std::unordered_map<char32_t, std::int32_t, KeyedHash> newer_;
};

class Strip final : public Normalizer {
 public:
  struct Sides {
    bool left, right;
  };
  explicit Strip(Sides sides) : sides_(sides) {}
  void apply(TrackedText& text) const override {
    std::size_t begin = 0, end = 0;
    bool seen = false;
    for (std::size_t i = 0; i < text.text.size();) {
      const Utf8Char c = utf8_at(text.text, i);
      if (!is_white_space(c.value)) {
        if (!seen) begin = i;
        seen = true;
        end = i + c.size;
      }
      i += c.size;
    }
    if (!seen) begin = sides_.left ? text.text.size() : 0;
    if (!sides_.left) begin = 0;
    if (!sides_.right) end = text.text.size();
    TrackedBuilder out(text);
    out.keep(begin, std::max(begin, end));
    TrackedText result = out.take();
    text = std::move(result);
  }

 private:
  Sides sides_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(const JsonView& list) {
    list.each([&](const JsonView& step) {
      if (auto n = make_normalizer(step)) steps_.push_back(std::move(n));
    });
  }
  void apply(TrackedText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonView& json) {
  if (json.is_null()) return nullptr;
  const std::string& type = json.at("type").text();
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") return std::make_unique<UnicodeForm>(type);
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend").text());
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<MapCharacters>(without_accents);
  if (type == "Nmt") return std::make_unique<MapCharacters>(nmt);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Strip")
    return std::make_unique<Strip>(Strip::Sides{json.flag("strip_left", true), json.flag("strip_right", true)});
  if (type == "Sequence") return std::make_unique<NormalizerSequence>(json.at("normalizers"));
  fail(ErrorKind::input, {.cause = "normalizer \"" + type + "\" is not supported",
                          .remedy = "supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, "
                                    "StripAccents, Nmt, ByteLevel, Sequence"});
}

}  // namespace qtrain
