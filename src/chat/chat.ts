/** What other folders take of the chat. What runs one is `run-chat.ts`. */
export { type AdditionParts, planAdditions } from './additions.ts';
export { AGENTS_MIGRATIONS } from './agents/migrations.ts';
export { openSealer, type Sealer } from './agents/sealed-text.ts';
export type { ChatParts } from './chat-run.ts';
export { LearnedDialects } from './learned-dialects.ts';
export { ChunkLayouts } from './wire/chunk-template.ts';
export { PaidResults } from './paid-results.ts';
export { RESPONSES_MIGRATIONS, responsesRoutes, StoredTurns } from './responses/responses.ts';
export { chatCompletionsRoute } from './run-chat.ts';
