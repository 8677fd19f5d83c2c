#pragma once
#include <vector>

#include "text/tokenizer/normalizer.h"

namespace qtrain {

/// NFC, NFD, NFKC or NFKD, by name.
class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(std::string_view name);
  void apply(TrackedText& text) const override;

 private:
  bool is_inert(char32_t c) const { return c < inert_.size() ? inert_[c] : false; }
  void append_form(std::string_view stretch, std::string& out) const;
  void append_part(std::string_view part, std::string& out) const;
  /// A character of a full decomposition, and the number of text characters that it starts: 1 for the first of each,
  /// otherwise 0.
  struct Part {
    char32_t value;
    std::uint32_t given;
    bool used = false;
  };
  std::vector<Part> parts_of(std::string_view text) const;
  std::string in_order(std::string_view part) const;
  /// A stretch of the text and its normalized form.
  struct Change {
    std::size_t start;
    std::string_view stretch, form;
  };
  void put_form(const Change& change, TrackedBuilder& out) const;

  int options_ = 0;
  // Characters that stay unchanged and across which nothing is reordered or composed.
  std::vector<bool> inert_;
};

}  // namespace qtrain
