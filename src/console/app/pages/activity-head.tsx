/** The head of both views of the page of activity: by request, and by tag. */
import { PageHead } from '../parts/page-head.tsx';
import { Tabs } from '../parts/tabs.tsx';

const VIEWS = [
  ['/console/activity', 'Requests'],
  ['/console/activity/tags', 'By tag'],
] as const;

interface ActivityHeadProps {
  readonly lead: string;
  readonly at: (typeof VIEWS)[number][0];
  /** Where all of it is a download. */
  readonly csv: string;
}

export function ActivityHead({ lead, at, csv }: ActivityHeadProps) {
  return (
    <>
      <PageHead title="Activity" lead={lead}>
        <a class="button" href={csv} download>
          Export CSV
        </a>
      </PageHead>
      <Tabs label="Views" tabs={VIEWS} at={at} />
    </>
  );
}
