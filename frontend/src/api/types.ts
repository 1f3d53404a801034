/** Short names for the API's types. */
import type { components } from "@/api/schema";

type Schemas = components["schemas"];

export type Me = Schemas["Me"];
export type LinkInfo = Schemas["LinkInfo"];
export type ApiKey = Schemas["ApiKey"];
export type Team = Schemas["Team"];
export type Quota = Schemas["Quota"];
export type Member = Schemas["Member"];
export type Dataset = Schemas["Dataset"];
export type DatasetVersion = Schemas["DatasetVersion"];
export type Preparation = Schemas["Preparation"];
export type Recipe = Schemas["Recipe"];
export type Statistics = Schemas["Statistics"];
export type RecipeCounts = Schemas["RecipeCounts"];
export type HistogramBin = Schemas["HistogramBin"];
export type DatasetFile = Schemas["DatasetFile"];
export type DocumentSample = Schemas["DocumentSample"];
export type Upload = Schemas["Upload"];
export type Preview = Schemas["Preview"];
export type PreviewFile = Schemas["PreviewFile"];
export type Tokenizer = Schemas["Tokenizer"];
export type Run = Schemas["Run"];
export type Fp8Recipe = Schemas["FP8Spec"];
export type RunState = Schemas["RunState"];
export type RunEvent = Schemas["RunEvent"];
export type Metrics = Schemas["Metrics"];
export type AttemptMark = Schemas["AttemptMark"];
export type MetricPoints = Schemas["MetricPoints"];
export type ErrorBody = Schemas["ErrorBody"];
export type LogLine = Schemas["LogLine"];
export type LogFile = Schemas["LogFile"];
export type Checkpoint = Schemas["Checkpoint"];
export type SpecInfo = Schemas["SpecInfo"];
export type Problem = Schemas["Problem"];
export type Verdicts = Schemas["Verdicts"];
export type Node = Schemas["Node"];
