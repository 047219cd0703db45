// generate: samples text from a trained model.
#include "engine/train/generate.hpp"

#include "command.hpp"

int main(int argc, char** argv) {
  using namespace engine;
  apps::Command command(
      "generate",
      "Samples text from a checkpoint or a Hugging Face directory. The text alone "
      "goes to stdout.");
  train::GenerateOptions options;
  command.option("--checkpoint", options.checkpoint, "Checkpoint or Hugging Face directory")
      .required();
  command.option("--prompt", options.prompt, "Text to continue").required();
  command.option("--tokenizer", options.tokenizer,
                 "bytes, gpt2:DIR or sentencepiece:FILE (default: the checkpoint's own)");
  command.option("--max-tokens", options.max_tokens, "Tokens to add").show_default();
  command.option("--temperature", options.temperature, "0 = always the likeliest token")
      .show_default();
  command.option("--top-k", options.top_k, "Sample among the k likeliest; 0 = off").show_default();
  command.option("--top-p", options.top_p, "Sample among the likeliest that together reach p")
      .show_default();
  command.option("--seed", options.seed, "Of the random numbers").show_default();
  command.option("--threads", options.threads, "CPU threads; 0 = all").show_default();
  command.flag("--bf16", options.bf16, "Compute in bf16");
  command.flag("!--no-cache", options.cache, "Run the whole sequence for every token");
  return command.run(argc, argv, [&] {
    train::generate(options, [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    });
    std::fputc('\n', stdout);
    return 0;
  });
}
