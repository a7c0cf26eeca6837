/** What `/mcp` says of itself. */
import { z } from 'zod';
import { type RouteDescription, eventContent, jsonContent } from '../http/describe.ts';

const Id = z.union([z.string(), z.int()]);

const McpRequest = z
  .looseObject({
    jsonrpc: z.literal('2.0').describe('The version of JSON-RPC.'),
    id: Id.optional().describe('Echoed in the answer; missing for a notification.'),
    method: z.string().optional().describe('`initialize`, `ping`, `tools/list`, `tools/call`, …'),
    params: z.looseObject({}).optional().describe('As the method takes them.'),
  })
  .meta({ id: 'McpRequest' });

const McpAnswer = z
  .looseObject({
    jsonrpc: z.literal('2.0').describe('The version of JSON-RPC.'),
    id: Id.optional().describe('Of the request; missing where it could not be read.'),
    result: z.looseObject({}).optional().describe('What the method gives.'),
    error: z
      .looseObject({
        code: z.int().describe('Of JSON-RPC or MCP; a refusal by HTTP has its status here.'),
        message: z.string().describe('What was wrong, and what would be right.'),
        data: z.unknown().optional().describe('More of it, for programs.'),
      })
      .optional()
      .describe('Why there is no result.'),
  })
  .meta({ id: 'McpAnswer' });

const CALL = {
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name: 'chat', arguments: { prompt: 'Name a colour.', max_tokens: 20 } },
};

const PROGRESS = {
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: 1, progress: 26, message: 'It is answering' },
};

export const MCP_DESCRIPTION: RouteDescription = {
  tag: 'MCP',
  summary: 'Speak the Model Context Protocol',
  about: `Streamable HTTP of MCP, stateless: what this API sells, as tools for agents. The revisions from 2024-11-05 to 2026-07-28 are spoken. A call of a tool costs what the route behind it costs, from the credit of the key or wallet; without either, the result says what to pay with x402.

A call that takes long answers with a stream of events: progress, where the client asked for it, and the answer as the last.`,
  request: jsonContent(z.union([McpRequest, z.array(McpRequest)]), CALL),
  response: [
    {
      status: 200,
      about: 'The answer to a request, and a refusal by its method.',
      headers: ['stream', 'mcp'],
      content: [
        ...jsonContent(z.union([McpAnswer, z.array(McpAnswer)]), {
          jsonrpc: '2.0',
          id: 1,
          result: {
            content: [{ type: 'text', text: 'Blue.' }],
            structuredContent: {
              text: 'Blue.',
              model: 'atlas',
              finish: 'stop',
              usage: { input_tokens: 9, output_tokens: 2, total_tokens: 11 },
              cost_usd: 0.0000013,
              sources: [],
            },
          },
        }),
        eventContent(
          z.union([McpRequest, McpAnswer]),
          `event: message\ndata: ${JSON.stringify(PROGRESS)}\n\n`,
        ),
      ],
    },
    { status: 202, about: 'A notification was taken.', headers: ['no-store'] },
    { status: 204, about: 'The client cancelled the call.', headers: ['no-store'] },
  ],
  refusalBody: {
    schema: McpAnswer,
    example: (message, code) => ({
      jsonrpc: '2.0',
      error: { code: 400, message, data: { code } },
    }),
  },
  refusals: ['UNAUTHORIZED', 'NOT_FOUND', 'INVALID_REQUEST'],
};
