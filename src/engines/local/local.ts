/** The public file of what embedded engines share: their child process, model fetches, and refusals. */
export type { LocalAddress } from './local-child.ts';
export type { FetchModel, ModelFile, ModelProgress } from './model-fetch.ts';
export { refusalFault } from './refusal.ts';
