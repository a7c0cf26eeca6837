/** Description of `/mcp` in the API document. */
import * as z from 'zod';
import { type RouteDescription, eventContent, jsonContent } from '../http/describe.ts';

const Id = z.union([z.string(), z.int()]);

const McpRequest = z
  .looseObject({
    jsonrpc: z.literal('2.0').describe('Version of JSON-RPC.'),
    id: Id.optional().describe('Returned with the response; absent in a notification.'),
    method: z.string().optional().describe('`initialize`, `ping`, `tools/list`, `tools/call`, …'),
    params: z.looseObject({}).optional().describe('Parameters of the method.'),
  })
  .meta({ id: 'McpRequest' });

const McpResponse = z
  .looseObject({
    jsonrpc: z.literal('2.0').describe('Version of JSON-RPC.'),
    id: Id.optional().describe('Id of the request; absent if it could not be read.'),
    result: z.looseObject({}).optional().describe('Result of the method.'),
    error: z
      .looseObject({
        code: z.int().describe('Code of JSON-RPC or MCP, or the HTTP status.'),
        message: z.string().describe('Problem and valid values.'),
        data: z.unknown().optional().describe('Details for programs.'),
      })
      .optional()
      .describe('Error of the request.'),
  })
  .meta({ id: 'McpResponse' });

const CALL = {
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name: 'chat', arguments: { prompt: 'Name a colour.', max_tokens: 20 } },
};

const PROGRESS = {
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: 1, progress: 26, message: 'The model is generating' },
};

export const MCP_DESCRIPTION: RouteDescription = {
  tag: 'MCP',
  summary: 'Call the MCP server',
  about: `Model Context Protocol over stateless Streamable HTTP: the API as tools for agents. Supports the revisions from 2024-11-05 to 2026-07-28. A tool call costs the price of its route and uses the credit of the key or wallet; without either, the result contains the payment requirements of x402.

The response to a long call is an event stream: progress if the client requested it, and the response as the final event.`,
  request: jsonContent(z.union([McpRequest, z.array(McpRequest)]), CALL),
  response: [
    {
      status: 200,
      about: 'The result or the error of a request.',
      headers: ['stream', 'mcp'],
      content: [
        ...jsonContent(z.union([McpResponse, z.array(McpResponse)]), {
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
          z.union([McpRequest, McpResponse]),
          `event: message\ndata: ${JSON.stringify(PROGRESS)}\n\n`,
        ),
      ],
    },
    { status: 202, about: 'The notification was accepted.', headers: ['no-store'] },
    { status: 204, about: 'The client cancelled the call.', headers: ['no-store'] },
  ],
  refusalBody: {
    schema: McpResponse,
    example: (message, code) => ({
      jsonrpc: '2.0',
      error: { code: 400, message, data: { code } },
    }),
  },
  refusals: ['UNAUTHORIZED', 'NOT_FOUND', 'INVALID_REQUEST'],
};
