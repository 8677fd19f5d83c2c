#include "data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_form.h"
#include "data/tokenizer/unicode_tables.h"

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
  explicit Replace(const Json& json) : finder_(find_pattern(json.at("pattern"))), content_(json.at("content")) {}
  void apply(TrackedText& text) const override {
    std::optional<TrackedBuilder> out;
    std::size_t last = 0;
    finder_(text.text, [&](std::size_t begin, std::size_t end) {
      if (!out) out.emplace(text);
      out->keep(last, begin);
      // The library's offsets: from the last character that goes.
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
  std::unordered_map<char32_t, std::int32_t> newer_;
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
  explicit NormalizerSequence(const Json& list) {
    for (const Json& step : list)
      if (auto n = make_normalizer(step)) steps_.push_back(std::move(n));
  }
  void apply(TrackedText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = json.at("type");
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") return std::make_unique<UnicodeForm>(type);
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend"));
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip")
    return std::make_unique<Strip>(Strip::Sides{json.value("strip_left", true), json.value("strip_right", true)});
  if (type == "Sequence") return std::make_unique<NormalizerSequence>(json.at("normalizers"));
  fail(ErrorKind::input, {.cause = "normalizer \"" + type + "\" is not supported",
                          .remedy = "supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, Sequence"});
}

}  // namespace qtrain
