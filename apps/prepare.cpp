// prepare: text to token files.
#include "engine/data/prepare.hpp"

#include <unistd.h>

#include <chrono>

#include "command.hpp"

namespace {

using engine::data::PrepareOptions;
using engine::data::PrepareResult;

constexpr const char* kDescription =
    "Turns text into train.bin, val.bin, meta.json and tokenizer/ for training.\n\n"
    "Inputs are text files, or .jsonl files with one object a line and its text under \"text\".\n"
    "Validation takes whole documents, spread evenly, if --val-fraction of their number is at "
    "least one;\nwith fewer documents, each is cut and its last fraction goes to validation.";

/// Rewrites one line of a terminal, a few times a second.
void show_progress(std::int64_t done, std::int64_t total) {
  using Clock = std::chrono::steady_clock;
  static Clock::time_point last;
  if (done != total && Clock::now() - last < std::chrono::milliseconds(200)) return;
  last = Clock::now();
  fmt::print(stderr, "\r{:5.1f}% of {:.1f} MB{}",
             100.0 * static_cast<double>(done) / static_cast<double>(total),
             static_cast<double>(total) * 1e-6, done == total ? "\n" : "");
  std::fflush(stderr);
}

void report(const PrepareOptions& options, const PrepareResult& result) {
  fmt::print(stderr, "{}: {} documents, {} training and {} validation tokens, vocabulary {}\n",
             options.out.string(), result.documents, result.train_tokens, result.val_tokens,
             result.vocab_size);
}

}  // namespace

int main(int argc, char** argv) {
  PrepareOptions options;
  std::string split = "file";
  engine::apps::Command command("prepare", kDescription);
  command.option("--tokenizer", options.tokenizer, "bytes, gpt2:DIR or sentencepiece:FILE")
      .required();
  command.option("--out", options.out, "Folder to write to").required();
  command.option("--val-fraction", options.val_fraction, "Part that is for validation, in [0, 1)")
      .show_default();
  command.option("--split", split, "What is a document: a file, a line, or blank lines between")
      .choices({"file", "line", "blank"})
      .show_default();
  command.flag("--append-eot", options.append_eot,
               "End documents with the end-of-text token, in place of the line ends between them");
  command.flag("--force", options.force, "Replace an existing train.bin");
  command.option("INPUT", options.inputs, "Text or .jsonl files").required();
  return command.run(argc, argv, [&] {
    options.split = engine::data::parse_document_split(split);
    if (!command.quiet() && ::isatty(STDERR_FILENO) != 0) options.progress = show_progress;
    const PrepareResult result = engine::data::prepare(options);
    if (!command.quiet()) report(options, result);
    return 0;
  });
}
