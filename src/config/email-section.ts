/** The section `email`: the mail server, the sender and the addresses of operators. */
import * as z from 'zod';
import { ADDRESS } from '../core/email-address.ts';
import { Text, secret } from './setting-kinds.ts';

const MAX_OPERATORS = 10;
const Address = z
  .string()
  .regex(ADDRESS, 'Must be an email address, such as ops@example.com')
  .max(254);

export const EmailSection = z
  .strictObject({
    host: Text.max(253).describe('Host name of the mail server (SMTP).'),
    port: z.int().min(1).max(65_535).default(587).describe('Port of the mail server.'),
    tls: z
      .enum(['starttls', 'implicit', 'none'])
      .default('starttls')
      .describe(
        'Encryption: `starttls` (port 587), `implicit` (port 465), or `none` for a server on the same machine.',
      ),
    user: Text.optional().describe('User name at the mail server. Default: no authentication.'),
    password: secret().optional().describe('Password at the mail server.'),
    from: Address.describe('Address of the sender.'),
    operators: z
      .array(Address)
      .max(MAX_OPERATORS)
      .default([])
      .describe('Addresses that receive alerts for operators, such as a failed backup.'),
    perAccountPerDay: z
      .int()
      .min(1)
      .max(10_000)
      .default(50)
      .describe(
        'Maximum messages to the recipients of one account, and to one address, per day and process.',
      ),
  })
  .optional();
export type EmailSection = z.infer<typeof EmailSection>;
