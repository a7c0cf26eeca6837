/**
 * What other folders take of the chat. A chat begins in `sell-chat.ts`; `chat-run.ts` carries it through
 * its engine calls, `chat-bounds.ts` and `chat-bill.ts` say what it costs at most and in the end, and its
 * answer is written in `sell-chat.ts` in one piece, in `streamed-response.ts` as a stream.
 */
export { type AdditionParts, planAdditions } from './additions.ts';
export { AGENTS_MIGRATIONS } from './agents/migrations.ts';
export { openSealer, type Sealer } from './agents/sealed-text.ts';
export { LearnedTemplates } from './learned-templates.ts';
export { type CacheScope, openCacheScope } from './cache-scope.ts';
export type { ChatParts } from './chat-run.ts';
export { LearnedDialects } from './learned-dialects.ts';
export { ChunkLayouts } from './wire/chunk-template.ts';
export { PaidResults } from './paid-results.ts';
export { RESPONSES_MIGRATIONS, responsesRoutes, StoredTurns } from './responses/responses.ts';
export { chatCompletionsRoute } from './sell-chat.ts';
