/** About how many tokens a prompt has, by our own count: what the routes that only count answer. */
import { mediaTokensAbout, tokensAbout } from '../../core/token-count.ts';
import type { ChatRequest } from '../wire/chat-request.ts';

/** What templates write around one message. */
const TOKENS_PER_MESSAGE = 4;

export function promptTokensAbout({ facts }: Pick<ChatRequest, 'facts'>): number {
  const text = tokensAbout(facts.textBytes) + TOKENS_PER_MESSAGE * facts.messageCount;
  return text + mediaTokensAbout(facts);
}
