/** What the JSON-RPC proxy takes and answers. Answers are the node's own bytes. */
import { z } from 'zod';
import { MAX_BATCH_ITEMS } from '../rpc.ts';

const Id = z.union([z.number(), z.string(), z.null()]);

const Request = z
  .looseObject({
    jsonrpc: z.literal('2.0'),
    method: z.string(),
    params: z.union([z.array(z.unknown()), z.record(z.string(), z.unknown())]).optional(),
    id: Id.optional().describe('Echoed; tells the items of a batch apart. At most 1,024 bytes.'),
  })
  .meta({ id: 'JsonRpcRequest' });

export const RpcBody = z.union([Request, z.array(Request).min(1).max(MAX_BATCH_ITEMS)]);

const Answer = z
  .looseObject({
    result: z.unknown().optional(),
    error: z.unknown().optional().describe('What the node says; such an item costs 5 credits.'),
    id: z.unknown().optional(),
  })
  .meta({ id: 'JsonRpcAnswer' });

export const RpcAnswers = z.union([Answer, z.array(Answer)]);

export const Networks = z.strictObject({ networks: z.array(z.string()) });
