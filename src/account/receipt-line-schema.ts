/** The schema of a line of a receipt. */
import * as z from 'zod';

const LINE_KINDS = [
  'input_tokens',
  'cache_read_tokens',
  'cache_write_tokens',
  'cache_write_1h_tokens',
  'audio_input_tokens',
  'image_input_tokens',
  'output_tokens',
  'reasoning_tokens',
  'audio_output_tokens',
  'image_output_tokens',
  'request',
  'image',
  'audio_seconds',
  'characters',
  'searches',
  'web_search',
  'web_scraping',
  'x_search',
  'credits',
  'quote',
  'refund',
  'rounding',
  'above_hold',
];

export type ReceiptLine = z.infer<typeof ReceiptLine>;
export const ReceiptLine = z
  .strictObject({
    kind: z
      .string()
      .describe('Kind of the priced work.')
      .meta({ enum: [...LINE_KINDS] }),
    quantity: z.number().optional().describe('Number of tokens or other units.'),
    per: z.number().int().optional().describe('Number of units that `price` is for: 1000000 or 1.'),
    price: z.string().optional().describe('Price in USD, decimal text.'),
    listPrice: z
      .string()
      .optional()
      .describe('List price in USD, decimal text, if the account had its own prices.'),
    usd: z.string().describe('Amount in USD, exact decimal text with up to 15 decimals.'),
  })
  .meta({ id: 'ReceiptLine' });

export const LINES_SAMPLE: ReceiptLine[] = [
  { kind: 'input_tokens', quantity: 9, per: 1_000_000, price: '0.3', usd: '0.0000027' },
  { kind: 'output_tokens', quantity: 7, per: 1_000_000, price: '1.2', usd: '0.0000084' },
];
