/**
 * The public file of the embedded llama.cpp engine: a child process that serves GGUF models in the OpenAI
 * protocol, the demo model that needs no download, the library of models that can be fetched, and
 * the search for engines that already run on this machine.
 */
export { demoModels } from './demo-model.ts';
export {
  type DiscoveredEngine,
  type DiscoveredModel,
  type ProbeTarget,
  USUAL_TARGETS,
  discoverEngines,
} from './discovery.ts';
export { LlamaEngine, llamaAvailable } from './llama-engine.ts';
export type { LoadedLlamaModel } from './llama-wire.ts';
export { type DownloadProgress, downloadFile } from './model-download.ts';
export {
  type LibraryModel,
  MODEL_LIBRARY,
  hasLibraryFile,
  libraryModel,
  libraryPath,
  librarySpec,
} from './model-library.ts';
export { TerminalProgress } from './terminal-progress.ts';
