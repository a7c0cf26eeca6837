/**
 * The Responses protocol: `POST /responses` as a translation onto the one chat run, and the routes of
 * the answers that it has stored. Its refusals have the protocol's own form.
 */
import { Fault } from '../../core/faults.ts';
import { type ReadLargeJson, readJson, readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { ResponseProtocol, WriterFrame } from '../agents/response-protocol.ts';
import { promptTokensAbout } from '../agents/prompt-count.ts';
import type { ChatParts } from '../chat-plan.ts';
import { sellChat } from '../admission.ts';
import { responsesErrors } from './refusals.ts';
import { ResponsesBody } from './request-schema.ts';
import { ResponseWriter, type TurnKeeper } from './response-writer.ts';
import {
  DELETE_RESPONSE_DESCRIPTION,
  GET_RESPONSE_DESCRIPTION,
  INPUT_ITEMS_DESCRIPTION,
  INPUT_TOKENS_DESCRIPTION,
  InputItemsQuery,
  RESPONSES_DESCRIPTION,
} from './describe.ts';
import { MAX_TURN_BYTES, type StoredTurn, type StoredTurns } from './stored-turns.ts';
import { readTurn, responseIdOf, type Turn } from './turn.ts';

export { RESPONSES_MIGRATIONS } from './migrations.ts';
export { StoredTurns } from './stored-turns.ts';

export interface ResponsesParts {
  readonly chat: ChatParts;
  readonly turns: StoredTurns;
  readonly readLarge: ReadLargeJson;
}

const SEALED_REASONING = 'reasoning.encrypted_content';
const CALL_ID_BYTES = 12;

const ROUTE = { auth: 'key-or-wallet', errors: responsesErrors } as const;

export function responsesRoutes(parts: ResponsesParts): Route[] {
  const { turns } = parts;
  return [
    {
      ...ROUTE,
      method: 'POST',
      path: '/responses',
      about: 'Responses',
      body: JSON_BODY,
      sells: 'chat',
      describe: RESPONSES_DESCRIPTION,
      handle: (context) => respond(parts, context),
    },
    {
      ...ROUTE,
      method: 'POST',
      path: '/responses/input_tokens',
      body: JSON_BODY,
      describe: INPUT_TOKENS_DESCRIPTION,
      handle: async (context) => {
        const { request } = await turnOf(parts, context);
        const input_tokens = promptTokensAbout(request);
        await context.json(200, { object: 'response.input_tokens', input_tokens });
      },
    },
    {
      ...ROUTE,
      method: 'GET',
      path: '/responses/:id',
      describe: GET_RESPONSE_DESCRIPTION,
      handle: async (context) => {
        const { response } = await storedTurn(turns, context);
        await context.json(200, response);
      },
    },
    {
      ...ROUTE,
      method: 'DELETE',
      path: '/responses/:id',
      describe: DELETE_RESPONSE_DESCRIPTION,
      handle: async (context) => {
        const id = idOf(context);
        if (!(await turns.remove(id, context.caller.accountId))) throw notFound(id);
        await context.json(200, { id, object: 'response', deleted: true });
      },
    },
    {
      ...ROUTE,
      method: 'GET',
      path: '/responses/:id/input_items',
      describe: INPUT_ITEMS_DESCRIPTION,
      handle: async (context) => {
        const query = readQuery(context, InputItemsQuery);
        const { id, input } = await storedTurn(turns, context);
        await context.json(200, itemList(id, input, query));
      },
    },
  ];
}

async function respond(parts: ResponsesParts, context: RequestContext): Promise<void> {
  const turn = await turnOf(parts, context);
  const keeper = await keeperOf(parts, context, turn);
  await sellChat(parts.chat, context, turn.request, protocolOf(parts, context, turn, keeper));
}

async function turnOf({ chat, turns, readLarge }: ResponsesParts, context: RequestContext) {
  const body = await readJson(context, ResponsesBody, readLarge);
  return readTurn({ ...chat, turns }, body, context.caller.accountId);
}

function protocolOf(
  { chat }: ResponsesParts,
  context: RequestContext,
  turn: Turn,
  keeper: TurnKeeper | undefined,
): ResponseProtocol {
  const { ids, clock, sealer } = chat;
  const { accountId } = context.caller;
  const isSealed = turn.body.include?.includes(SEALED_REASONING) === true;
  return {
    name: 'responses',
    maxSearches: turn.body.max_tool_calls ?? undefined,
    takenCallIds: turn.callIds,
    newCallId: () => `call_${ids.hex(CALL_ID_BYTES)}`,
    writer: (frame: WriterFrame) =>
      new ResponseWriter({
        turn,
        frame,
        keeper,
        seal: isSealed ? (text) => sealer.seal(text, accountId) : undefined,
        nowS: () => Math.floor(clock.nowMs() / 1_000),
      }),
  };
}

/** How the turn is kept; `undefined` when it is not, or there is no room for it. */
async function keeperOf(
  { chat, turns }: ResponsesParts,
  context: RequestContext,
  { body, items }: Turn,
): Promise<TurnKeeper | undefined> {
  const { accountId } = context.caller;
  if (body.store === false || !(await turns.hasRoom(accountId))) return undefined;
  const inputJson = JSON.stringify(items);
  const inputBytes = Buffer.byteLength(inputJson);
  if (inputBytes > MAX_TURN_BYTES) return undefined;
  return {
    fits: (responseJson) => inputBytes + Buffer.byteLength(responseJson) <= MAX_TURN_BYTES,
    keep: (tx, { responseJson, status, costNano }) =>
      turns.add(tx, {
        id: responseIdOf(context.requestId),
        accountId,
        parentId: body.previous_response_id ?? undefined,
        createdMs: chat.clock.nowMs(),
        model: body.model,
        status,
        costNano,
        inputJson,
        responseJson,
      }),
  };
}

async function storedTurn(turns: StoredTurns, context: RequestContext): Promise<StoredTurn> {
  const id = idOf(context);
  const turn = await turns.get(id, context.caller.accountId);
  if (turn === undefined) throw notFound(id);
  return turn;
}

function idOf({ parameters }: RequestContext): string {
  return parameters['id'] ?? '';
}

function notFound(id: string): Fault {
  return new Fault('NOT_FOUND', {
    message: `The response ${id.slice(0, 100)} is not stored for this account, or no longer`,
  });
}

/** The items of an input as a page of a list; those that came without an id have one here. */
function itemList(
  responseId: string,
  input: readonly JsonObject[],
  { limit, order, after }: { limit: number; order: 'asc' | 'desc'; after?: string | undefined },
) {
  const digits = responseId.replace(/^resp_/, '');
  const items = input.map((item, at) => ({
    ...item,
    id: typeof item['id'] === 'string' ? item['id'] : `msg_${digits}_i${at}`,
    type: typeof item['type'] === 'string' ? item['type'] : 'message',
    ...(typeof item['content'] === 'string'
      ? { content: [{ type: 'input_text', text: item['content'] }] }
      : {}),
  }));
  if (order === 'desc') items.reverse();
  const start = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1;
  const data = items.slice(start, start + limit).filter(isJsonObject);
  return {
    object: 'list',
    data,
    first_id: data[0]?.['id'] ?? null,
    last_id: data.at(-1)?.['id'] ?? null,
    has_more: start + limit < items.length,
  };
}
