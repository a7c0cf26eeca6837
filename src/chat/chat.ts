/**
 * The public file of the chat. The route of a protocol (`chat-completions/`, `messages/`, `responses/`)
 * parses a request, `admission.ts` holds its money, `run.ts` carries it through its engine calls and
 * responds; `stream-run.ts` does so for a stream. `chat-bounds.ts` says what it costs at most,
 * `chat-bill.ts` what it has cost.
 */
export { type AdditionParts, planAdditions } from './additions.ts';
export { AGENTS_MIGRATIONS } from './agents/migrations.ts';
export { openSealer, type Sealer } from './agents/sealed-text.ts';
export { LearnedTemplates } from './learned-templates.ts';
export { type CacheScope, openCacheScope } from './cache-scope.ts';
export type { ChatParts } from './chat-plan.ts';
export { LearnedDialects } from './learned-dialects.ts';
export { ChunkLayouts } from './wire/chunk-template.ts';
export { PaidResults } from './paid-results.ts';
export { RESPONSES_MIGRATIONS, responsesRoutes, StoredTurns } from './responses/responses.ts';
