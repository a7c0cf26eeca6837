/** Creates the blocks of a run for a caller of another protocol than chat completions. */
import { ResponseBlocks } from './agents/response-blocks.ts';
import type { ResponseProtocol } from './agents/response-protocol.ts';
import type { ChatPlan } from './chat-plan.ts';
import type { SearchResult } from './web/web.ts';
import type { ResponseFrame, ResponseOptions } from './wire/chat-response.ts';
import { promptTokensAbout } from './wire/prompt-facts.ts';

export function newBlocks(
  { request, context }: ChatPlan,
  protocol: ResponseProtocol,
  { id: _chats, ...frame }: ResponseOptions & ResponseFrame,
  sources: () => readonly SearchResult[],
): ResponseBlocks {
  const promptTokens = promptTokensAbout(request);
  return new ResponseBlocks({
    writer: protocol.writer({ ...frame, requestId: context.requestId, promptTokens }),
    sources: request.parameters.enable_web_citations ? sources : undefined,
    takenCallIds: protocol.takenCallIds,
    newCallId: protocol.newCallId,
  });
}
