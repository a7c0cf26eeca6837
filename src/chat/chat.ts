/**
 * The public file of the chat. A protocol's route (`chat-completions/`, `messages/`, `responses/`)
 * parses a request, `admission.ts` holds its money, and `run.ts` (or `stream-run.ts`) calls the
 * engine and responds. `chat-bounds.ts` computes the maximum cost, `chat-bill.ts` the actual one.
 */
export { type AdditionParts, planAdditions } from './additions.ts';
export { AGENTS_MIGRATIONS } from './agents/migrations.ts';
export { openSealer, type Sealer } from './agents/sealed-text.ts';
export { type CacheScope, openCacheScope } from './cache-scope.ts';
export type { ChatParts } from './chat-plan.ts';
export { LearnedDialects, LearnedTemplates, UnpricedTokens } from './learned.ts';
export { ChunkLayouts } from './wire/chunk-layout.ts';
export { PaidResults } from './paid-results.ts';
export { RESPONSES_MIGRATIONS, responsesRoutes, StoredTurns } from './responses/responses.ts';
