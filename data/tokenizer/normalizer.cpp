#include "data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>

#include "data/tokenizer/regex.h"
#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

// NFC, NFD, NFKC, NFKD.
class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(int options) : options_(options) {}
  void apply(TrackedText& text) const override {
    if (is_ascii(text.text)) return;
    TrackedBuilder out(text);
    bool changed = false;
    // Nothing composes across a border in front of an ASCII character, so each stretch is normalised by itself.
    for (std::size_t begin = 0, end; begin < text.text.size(); begin = end) {
      end = begin + 1;
      while (end < text.text.size() && static_cast<unsigned char>(text.text[end]) >= 0x80) ++end;
      const std::string_view stretch = std::string_view(text.text).substr(begin, end - begin);
      const std::string form = end - begin == 1 ? std::string(stretch) : normalised(stretch);
      if (form == stretch) {
        out.keep(begin, end);
      } else {
        out.replace(begin, end, form);
        changed = true;
      }
    }
    if (changed) text = out.take();
  }

 private:
  static bool is_ascii(std::string_view s) {
    for (const char c : s)
      if (static_cast<unsigned char>(c) >= 0x80) return false;
    return true;
  }
  std::string normalised(std::string_view s) const {
    utf8proc_uint8_t* result = nullptr;
    const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(s.data()), static_cast<utf8proc_ssize_t>(s.size()), &result,
                                static_cast<utf8proc_option_t>(options_));
    if (n < 0) return std::string(s);
    std::string out(reinterpret_cast<char*>(result), static_cast<std::size_t>(n));
    std::free(result);
    return out;
  }
  int options_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(TrackedText& text) const override {
    if (text.text.empty()) return;
    TrackedBuilder out(text);
    out.replace(0, 0, prefix_);
    out.keep(0, text.text.size());
    text = out.take();
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::string pattern, std::optional<Regex> regex, std::string content)
      : pattern_(std::move(pattern)), regex_(std::move(regex)), content_(std::move(content)) {}
  void apply(TrackedText& text) const override {
    TrackedBuilder out(text);
    std::size_t last = 0;
    const auto replace = [&](std::size_t begin, std::size_t end) {
      out.keep(last, begin);
      out.replace(begin, end, content_);
      last = end;
    };
    if (regex_) {
      regex_->each_match(text.text, replace);
    } else {
      for (std::size_t at = 0; !pattern_.empty() && (at = text.text.find(pattern_, at)) != std::string::npos; at += pattern_.size())
        replace(at, at + pattern_.size());
    }
    if (last == 0) return;
    out.keep(last, text.text.size());
    text = out.take();
  }

 private:
  std::string pattern_;
  std::optional<Regex> regex_;
  std::string content_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(TrackedText& text) const override {
    TrackedBuilder out(text);
    for (std::size_t i = 0; i < text.text.size();) {
      const Utf8Char c = utf8_at(text.text, i);
      std::string lower;
      append_utf8(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
      out.replace(i, i + c.size, c.value == 0x130 ? "i\u0307" : lower);
      i += c.size;
    }
    text = out.take();
  }
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
    text = out.take();
  }

 private:
  Sides sides_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(const Json& list) {
    for (const Json& step : list)
      if (auto n = make_normalizer(step)) steps_.push_back(std::move(n));
  }
  void apply(TrackedText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

std::unique_ptr<Normalizer> make_replace(const Json& json) {
  const Json& pattern = json.at("pattern");
  if (pattern.contains("Regex")) return std::make_unique<Replace>("", Regex(pattern["Regex"].get<std::string>()), json.at("content"));
  return std::make_unique<Replace>(pattern.at("String"), std::nullopt, json.at("content"));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = json.at("type");
  constexpr int kStable = UTF8PROC_STABLE;
  if (type == "NFC") return std::make_unique<UnicodeForm>(kStable | UTF8PROC_COMPOSE);
  if (type == "NFD") return std::make_unique<UnicodeForm>(kStable | UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(kStable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(kStable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend"));
  if (type == "Replace") return make_replace(json);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") return std::make_unique<Strip>(Strip::Sides{json.value("strip_left", true), json.value("strip_right", true)});
  if (type == "Sequence") return std::make_unique<Sequence>(json.at("normalizers"));
  fail(ErrorKind::input, {.cause = "normalizer \"" + type + "\" is not supported", .remedy = "supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, Sequence"});
}

}  // namespace qtrain
